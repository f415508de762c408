from __future__ import annotations

import traceback
from typing import Any

import pytest

from blackboard.errors import ConfigError
from blackboard.store.address import Address, Endpoint, Login, Tls


def test_single_servers() -> None:
    assert Address.parse("unix:///run/a%20b.sock?db=3") == Address(
        "single", (Endpoint(path="/run/a b.sock"),), Login(db=3)
    )
    assert Address.parse("redis://localhost") == Address("single", (Endpoint("localhost", 6379),))
    assert Address.parse("redis://us%3Aer:p%40ss%2F@[::1]:7000/12") == Address(
        "single", (Endpoint("::1", 7000),), Login("us:er", "p@ss/", 12)
    )
    assert Address.parse("redis://:secret@host/").login == Login(None, "secret", 0)
    assert Address.parse("redis://host?username=u&password=p&db=1").login == Login("u", "p", 1)


def test_tls() -> None:
    address = Address.parse("rediss://host:1?ssl_ca_certs=/a.pem&ssl_cert_reqs=none&ssl_check_hostname=false")
    assert address.tls == Tls(ca_certs="/a.pem", verify=False, check_hostname=False)
    assert Address.parse("rediss://host").tls == Tls()
    with pytest.raises(ConfigError, match="check ssl_ca_certs"):
        Tls(ca_certs="/no/such/file.pem").context()


def test_groups() -> None:
    cluster = Address.parse("redis+cluster://u:p@a:1,b:2,c")
    assert (cluster.kind, cluster.endpoints) == ("cluster", (Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 6379)))
    assert cluster.login == Login("u", "p")
    group = Address.parse("redis+sentinel://u:p@a:1,b/my-master?db=2&sentinel_password=s")
    assert (group.kind, group.endpoints) == ("sentinel", (Endpoint("a", 1), Endpoint("b", 26379)))
    assert (group.master, group.login, group.sentinel_login) == ("my-master", Login("u", "p", 2), Login(None, "s"))
    secure = Address.parse("rediss+sentinel://a/m?sentinel_tls=false")
    assert (secure.tls, secure.sentinel_tls) == (Tls(), None)


@pytest.mark.parametrize(
    ("url", "mend"),
    [
        ("http://host", "scheme 'http' is unknown; use one of unix, redis, rediss"),
        ("localhost:6379", "use one of unix"),
        ("", "not empty"),
        ("redis://", "write host:port"),
        ("redis://host:0", "port 0"),
        ("redis://host:70000", "from 1 to 65535"),
        ("redis://host:port", "from 1 to 65535"),
        ("redis://a,b", r"several are for redis\+cluster"),
        ("redis://host/one", "must be a number, got 'one'"),
        ("redis://host?db=-1", "must be a number, got '-1'"),
        ("redis://host?timeout=3", "'timeout' is unknown here; use one of db, password, username"),
        ("redis://host?ssl_ca_certs=/a", "'ssl_ca_certs' is unknown here"),
        ("redis://host?db=1&db=2", "stands twice"),
        ("redis://host/0#x", "%23"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix://", "three slashes"),
        ("redis+cluster://host/1", "a cluster has no databases"),
        ("redis+sentinel://host", "ends with the master's name"),
        ("rediss://host?ssl_cert_reqs=maybe", "'required' or 'none', got 'maybe'"),
        ("rediss://host?ssl_check_hostname=maybe", "must be true or false, got 'maybe'"),
    ],
)
def test_wrong_urls_name_the_mend(url: str, mend: str) -> None:
    with pytest.raises(ConfigError, match=mend):
        Address.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:se/cret@host",
        "redis://user:se?cret@host",
        "redis://user:se#cret@host",
        "redis://user:se@cret@host:port",
        "redis://user:secret@host:port",
        "redis://host:secret",
        "redis://user:se\u2100cret@host",
        "redis://host?password=secret&what=1",
        "redis+cluster://user:secret@host/1",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        Address.parse(url)
    text = "".join(traceback.format_exception(wrong.value)) + repr(wrong.value.ids)
    assert "cret" not in text.replace(url, "")
    assert url not in text


def test_no_repr_shows_a_password() -> None:
    address = Address.parse("redis+sentinel://user:secret@host/master?sentinel_password=secret")
    assert "secret" not in f"{address!r} {address}"
    assert "master" in str(address)


@pytest.mark.parametrize("url", ["", "  ", 5, b"redis://u:secret@host", "redis://\ud800", None])
def test_what_is_no_url(url: Any) -> None:
    with pytest.raises(ConfigError, match="the backend's URL is wrong: it") as caught:
        Address.parse(url)
    assert "secret" not in str(caught.value)
