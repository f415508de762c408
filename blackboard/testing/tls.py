"""A real server behind TLS with a certificate authority of its own, made with the `openssl` command."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from blackboard.store.binaries import on_path
from blackboard.testing.servers import Server, Setting, StartError, durable, free_port, launch, spelled

__all__ = ["start_tls", "tls_missing"]

_DAYS = "2"


def tls_missing(binary: Path) -> str | None:
    """Say what this machine lacks for a TLS server (a reason to skip), or None."""
    if on_path("openssl") is None:
        return "the command openssl is not on PATH"
    if not _speaks_tls(binary):
        return f"{binary.name} was built without TLS"
    return None


def _speaks_tls(binary: Path) -> bool:
    """Start the binary with a certificate that is not there: only one built with TLS complains of that, then ends."""
    settings = [
        "--port",
        "0",
        "--tls-port",
        "1",
        "--bind",
        "127.0.0.1",
        "--tls-cert-file",
        os.devnull,
        "--tls-key-file",
        os.devnull,
    ]
    with tempfile.TemporaryDirectory() as nowhere:
        try:
            ended = subprocess.run(
                [binary, *settings], cwd=nowhere, capture_output=True, text=True, timeout=2, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return "Failed to configure TLS" in ended.stdout + ended.stderr


async def start_tls(binary: Path, directory: Path, **config: Setting) -> Server:
    """Start a server that speaks TLS alone, on a free loopback port, durable as `start_server`'s.

    `server.url` is `rediss://localhost:port?ssl_ca_certs=...`, which names the authority to trust. Raises StartError
    with what `tls_missing` says if it cannot be done here.
    """
    if (reason := tls_missing(binary)) is not None:
        raise StartError(reason)
    directory.mkdir(parents=True, exist_ok=True)
    authority = _certificates(directory)
    port = free_port()
    settings = durable() | {
        "tls-port": port,
        "tls-cert-file": directory / "server.crt",
        "tls-key-file": directory / "server.key",
    }
    settings |= {"tls-ca-cert-file": authority, "tls-auth-clients": False}
    return await launch(Server(binary, directory, settings | spelled(config), port=port, authority=authority))


def _certificates(directory: Path) -> Path:
    """Make an authority and a server certificate for localhost that it signed; return the authority's certificate."""
    (directory / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    _openssl(
        directory,
        "req",
        "-x509",
        "-days",
        _DAYS,
        "-subj",
        "/CN=test authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
        *_KEY,
    )
    _openssl(directory, "req", "-new", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr", *_KEY)
    signed = ["-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    _openssl(directory, "x509", "-req", "-days", _DAYS, *signed, "-out", "server.crt")
    return directory / "ca.crt"


_KEY = ("-newkey", "rsa:2048", "-nodes")


def _openssl(directory: Path, *arguments: str) -> None:
    ended = subprocess.run(
        ["openssl", *arguments], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    if ended.returncode:
        raise StartError(f"openssl {arguments[0]} failed: {ended.stderr[-500:]}")
