"""Who may enter: passwords, users, databases, certificates. No password is in any error, repr or log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from blackboard.errors import ServerRefused, ServerUnavailable
from blackboard.store.client import Store
from blackboard.testing.servers import Server, binaries, start_server
from blackboard.testing.tls import start_tls, tls_missing

PASSWORD = "s3cr3t-p@ss/word"
QUOTED = "s3cr3t-p%40ss%2Fword"


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with a user who may touch bb:* only."""
    async with await start_server(next(iter(binaries().values())), tmp_path, tcp=True) as started:
        await started.ask("ACL", "SETUSER", "agent", "on", f">{PASSWORD}", "~bb:*", "+@all", "-@dangerous")
        await started.ask("ACL", "SETUSER", "default", "off")
        yield started


def address(server: Server, user: str) -> str:
    return f"redis://{user}@127.0.0.1:{server.port}"


async def test_user_enters_and_is_held_to_its_keys(guarded: Server) -> None:
    store = await Store.connect(address(guarded, f"agent:{QUOTED}"))
    assert await store.command("SET", "bb:key", 1) == b"OK"
    with pytest.raises(ServerRefused, match="ACL SETUSER") as refused:
        await store.command("SET", "other", 1)
    assert refused.value.code == "NOPERM"
    assert (await store.primaries())[0].identity is None  # INFO is forbidden: never new, never refused
    await store.close()


async def test_unix_url_carries_user_and_database(guarded: Server) -> None:
    store = await Store.connect(f"unix://{guarded.socket}?username=agent&password={QUOTED}&db=3")
    assert await store.command("SET", "bb:key", 1) == b"OK"
    await store.close()
    store = await Store.connect(f"unix://{guarded.socket}?username=agent&password={QUOTED}&db=4")
    assert await store.command("GET", "bb:key") is None
    await store.close()


@pytest.mark.parametrize(
    ("user", "code"),
    [
        (f"agent:not-{QUOTED}", "WRONGPASS"),
        (f":{QUOTED}", "WRONGPASS"),
        (f"nobody:{QUOTED}", "WRONGPASS"),
        ("", "NOAUTH"),
    ],
)
async def test_wrong_password_is_refused_at_once_and_not_shown(
    guarded: Server, user: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ServerRefused) as refused:
        await Store.connect(address(guarded, user))
    assert refused.value.code == code
    text = "".join(traceback.format_exception(refused.value)) + repr(refused.value.ids) + caplog.text
    assert "s3cr3t" not in text


async def test_password_is_not_shown_by_what_lives(guarded: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = await Store.connect(address(guarded, f"agent:{QUOTED}"), retry_deadline=0.2)
    guarded.kill()
    with pytest.raises(ServerUnavailable) as outage:
        await store.command("GET", "bb:key")
    text = "".join(traceback.format_exception(outage.value)) + repr(store) + repr(store._address) + caplog.text
    assert "s3cr3t" not in text
    await store.close()


@pytest_asyncio.fixture
async def secure(tmp_path: Path) -> AsyncIterator[Server]:
    able = [binary for binary in binaries().values() if tls_missing(binary) is None]
    if not able:
        pytest.skip("no server binary here was built with TLS")
    async with await start_tls(able[0], tmp_path) as started:
        yield started


async def test_tls(secure: Server) -> None:
    store = await Store.connect(secure.url)
    assert await store.command("SET", "key", b"x" * (2 << 20)) == b"OK"
    assert await store.command("STRLEN", "key") == 2 << 20
    await secure.restart(kill=True)
    assert await store.command("PING") == b"PONG"
    await store.close()


async def test_unknown_authority_is_an_outage_that_says_so(secure: Server) -> None:
    with pytest.raises(ServerUnavailable, match="certificate verify failed"):
        await Store.connect(f"rediss://localhost:{secure.port}", retry_deadline=0.3)
    store = await Store.connect(f"rediss://localhost:{secure.port}?ssl_cert_reqs=none")
    assert await store.command("PING") == b"PONG"
    await store.close()


async def test_certificate_of_another_host_is_refused(secure: Server) -> None:
    other = secure.url.replace("localhost", "127.1")  # the same place under a name that is not certified
    with pytest.raises(ServerUnavailable, match="certificate is not valid for"):
        await Store.connect(other, retry_deadline=0.3)
