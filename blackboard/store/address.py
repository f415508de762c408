"""Where the backend is: one URL for a single server, a cluster or a sentinel group.

| URL | what |
|---|---|
| `unix:///run/redis.sock?db=0` | a server on a socket of this machine |
| `redis://user:password@host:6379/0` | a server by TCP |
| `rediss://host:6379/0?ssl_ca_certs=/etc/ca.pem` | the same through TLS |
| `redis+cluster://host:7000,host:7001` | any nodes of a cluster (`rediss+cluster` with TLS) |
| `redis+sentinel://host:26379,host:26380/master-name?db=0` | any sentinels and the master's name |

Query parameters: `db`, `username`, `password`; with TLS `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`,
`ssl_cert_reqs` (`required`, the default, or `none`), `ssl_check_hostname` (`true`, the default, or `false`); for
sentinels `sentinel_username`, `sentinel_password`, `sentinel_tls` (`true` with a `rediss+sentinel` URL, the default).
User, password and path are percent-decoded. No password is ever part of a text that this module gives out.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from blackboard.errors import ConfigError

__all__ = ["Address", "Endpoint", "Kind", "Login", "Tls"]

Kind: TypeAlias = Literal["single", "cluster", "sentinel"]

SCHEMES: dict[str, tuple[Kind, bool]] = {
    "unix": ("single", False),
    "redis": ("single", False),
    "rediss": ("single", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
}

PARAMETERS = frozenset({"db", "username", "password"})
TLS_PARAMETERS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})
SENTINEL_PARAMETERS = frozenset({"sentinel_username", "sentinel_password", "sentinel_tls"})

FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A place to connect to: a socket of this machine (`path`), or host and port."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """What a connection says first. The password is in no repr."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server's certificate is checked, and our own."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Build the context; ConfigError if a file cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_certs)
            if self.certfile:
                context.load_cert_chain(self.certfile, self.keyfile)
        except (OSError, ssl.SSLError) as wrong:
            raise ConfigError(
                f"TLS files cannot be used ({wrong}); check ssl_ca_certs, ssl_certfile and ssl_keyfile",
                value=str(wrong),
            ) from None
        context.check_hostname = self.check_hostname and self.verify
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL."""

    kind: Kind
    endpoints: tuple[Endpoint, ...]
    login: Login = field(default_factory=Login)
    tls: Tls | None = None
    master: str = ""
    sentinel_login: Login = field(default_factory=Login)
    sentinel_tls: Tls | None = None

    def __str__(self) -> str:
        places = ",".join(map(str, self.endpoints))
        return f"{self.kind} {places}" + (f" master {self.master!r}" if self.master else "")

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL, or raise ConfigError that names what is wrong with it, never its password."""
        given: Any = url  # callers may not be typed
        if not isinstance(given, str) or not given.strip():
            raise _wrong(
                "it must be text such as redis://host:6379/0, and not empty; leave it out for the embedded server"
            )
        try:
            parts = urlsplit(url)
            url.encode()
        except UnicodeEncodeError:
            raise _wrong("it holds a lone surrogate; use valid text") from None
        except ValueError:
            raise _wrong("its host cannot be read; percent-encode user and password") from None
        if parts.scheme not in SCHEMES:
            raise _wrong(f"its scheme {parts.scheme!r} is unknown; use one of {', '.join(SCHEMES)}")
        if parts.scheme != "unix" and "@" in f"{parts.path}{parts.query}{parts.fragment}":
            raise _wrong(
                "an '@' stands behind the host; percent-encode user, password and parameters (/ is %2F, @ %40)"
            )
        kind, secure = SCHEMES[parts.scheme]
        query = _query(parts, kind, secure)
        tls = _tls(query) if secure else None
        place = parts.path.strip("/")
        name = unquote(place) if kind == "sentinel" else ""
        if kind == "sentinel" and (not name or "/" in name):
            raise _wrong("a sentinel URL ends with the master's name: redis+sentinel://host:26379/mymaster")
        return cls(
            kind=kind,
            endpoints=_endpoints(parts, kind),
            login=_login(parts, query, kind, place),
            tls=tls,
            master=name,
            sentinel_login=Login(query.get("sentinel_username"), query.get("sentinel_password")),
            sentinel_tls=tls if _flag(query, "sentinel_tls") else None,
        )


def _wrong(why: str) -> ConfigError:
    return ConfigError(f"the backend's URL is wrong: {why}")


def _query(parts: SplitResult, kind: Kind, secure: bool) -> dict[str, str]:
    if parts.fragment:
        raise _wrong("it holds a '#'; percent-encode it as %23")
    allowed = set(PARAMETERS)
    if secure:
        allowed |= TLS_PARAMETERS
    if kind == "sentinel":
        allowed |= SENTINEL_PARAMETERS
    query: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed:
            raise _wrong(f"parameter {name!r} is unknown here; use one of {', '.join(sorted(allowed))}")
        if name in query:
            raise _wrong(f"parameter {name!r} stands twice")
        query[name] = value
    return query


def _flag(query: dict[str, str], name: str) -> bool:
    text = query.get(name, "true").lower()
    if text not in FLAGS:
        raise _wrong(f"{name} must be true or false, got {text!r}")
    return FLAGS[text]


def _tls(query: dict[str, str]) -> Tls:
    verify = query.get("ssl_cert_reqs", "required")
    if verify not in ("required", "none"):
        raise _wrong(f"ssl_cert_reqs must be 'required' or 'none', got {verify!r}")
    return Tls(
        ca_certs=query.get("ssl_ca_certs"),
        certfile=query.get("ssl_certfile"),
        keyfile=query.get("ssl_keyfile"),
        verify=verify == "required",
        check_hostname=_flag(query, "ssl_check_hostname"),
    )


def _login(parts: SplitResult, query: dict[str, str], kind: Kind, place: str) -> Login:
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    text = query.get("db", place if kind == "single" and parts.scheme != "unix" else "") or "0"
    if not (text.isascii() and text.isdigit()):
        raise _wrong(f"the database must be a number, got {text!r}")
    if kind == "cluster" and (text != "0" or place):
        raise _wrong(f"a cluster has no databases and its URL no path, got {place or text!r}")
    return Login(
        query.get("username", unquote(user)) or None,
        query.get("password", unquote(password)) or None,
        int(text),
    )


def _endpoints(parts: SplitResult, kind: Kind) -> tuple[Endpoint, ...]:
    hosts = parts.netloc.rpartition("@")[2]
    if parts.scheme == "unix":
        path = unquote(parts.path)
        if hosts or len(path) < 2:
            raise _wrong("a socket needs three slashes and an absolute path: unix:///run/redis.sock")
        return (Endpoint(path=path),)
    default = 26379 if kind == "sentinel" else 6379
    endpoints = tuple(_endpoint(host, default) for host in hosts.split(","))
    if kind == "single" and len(endpoints) > 1:
        raise _wrong(f"{parts.scheme}:// takes one host; several are for redis+cluster:// and redis+sentinel://")
    return endpoints


def _endpoint(text: str, default: int) -> Endpoint:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _wrong("a port must be a number from 1 to 65535; write host:port") from None
    if not host or port == 0:
        raise _wrong("a host is missing; write host:port" if not host else "port 0 cannot be used")
    return Endpoint(host, port or default)
