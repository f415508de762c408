"""Values that are too long for a thread stand in artifacts, and what its contents mention is kept."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from io import BytesIO

import pytest
import pytest_asyncio
from pydantic import BaseModel

from blackboard import Blackboard, Log, keys
from blackboard.artifacts.owner import Owner
from blackboard.artifacts.ref import ArtifactRef
from blackboard.artifacts.store import ArtifactStore
from blackboard.checkpoints.channels import Channel, Items, Value
from blackboard.checkpoints.commit import Committed
from blackboard.checkpoints.engine import Engine, Write
from blackboard.checkpoints.fork import Copier
from blackboard.checkpoints.outside import ThreadReferrer
from blackboard.checkpoints.prune import Pruner
from blackboard.codec.cipher import MAGIC
from blackboard.errors import ConfigError, CorruptValue, EncodeError, StoreRegressed
from blackboard.runs.portable import export_thread, import_thread
from blackboard.settings import CheckpointNamespace, Settings
from blackboard.store.client import Store
from blackboard.testing.contracts.thread import step
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server

NAMESPACE = "checkpoint"
KEY = base64.b64encode(b"k" * 32).decode()
PLAIN = CheckpointNamespace(oversize="artifact", artifact_limit=1000)
SEALED = CheckpointNamespace(oversize="artifact", artifact_limit=1000, encryption={"keys": {"k": KEY}, "current": "k"})
POLICIES = {"plain": PLAIN, "sealed": SEALED}


@dataclass
class Bench:
    """An engine, and the looks that the tests take."""

    engine: Engine
    thread: str

    @property
    def artifacts(self) -> ArtifactStore:
        return self.engine.outside.artifacts

    @property
    def where(self) -> keys.ThreadKeys:
        return keys.ThreadKeys.of(NAMESPACE, self.thread)

    async def commit(self, channels: Mapping[str, Channel], after: Committed | None = None) -> Committed:
        return await self.engine.commit(self.thread, step(channels, after), sequence=after.sequence if after else 0)

    async def held(self, thread: str | None = None) -> dict[str, str]:
        """What the thread refers to."""
        flat = await self.engine.store.command(
            "HGETALL", keys.ThreadKeys.of(NAMESPACE, thread or self.thread).artifacts
        )
        return {flat[at].decode(): flat[at + 1].decode() for at in range(0, len(flat), 2)}

    async def read(self, name: str = "v", thread: str | None = None) -> object:
        found = await self.engine.latest(thread or self.thread)
        assert found is not None
        return found.contents[name]

    async def refers(self, digest: str, thread: str | None = None) -> bool:
        owner = Owner("thread", NAMESPACE, thread or self.thread)
        return await ThreadReferrer(self.engine.store).refers(owner, digest)


@pytest.fixture(params=sorted(POLICIES))
def bench(request: pytest.FixtureRequest, store: Store, thread: str) -> Bench:
    return Bench(Engine(store, NAMESPACE, POLICIES[request.param]), thread)


@pytest_asyncio.fixture
async def store(solo: Server) -> AsyncIterator[Store]:
    connected = await Store.connect(solo.url)
    yield connected
    await connected.close()


def long(size: int = 3000) -> bytes:
    return json.dumps(os.urandom(size).hex()).encode()


async def test_a_long_value_is_moved_out_and_read_back(bench: Bench) -> None:
    value = long()
    done = await bench.commit({"v": Value(value), "short": Value(b'"short"')})
    ref = done.refs["v"]
    assert ref.artifact is not None
    assert await bench.held() == {ref.artifact: "moved"}
    assert (await bench.read(), await bench.read("short")) == (value, b'"short"')
    stored = await bench.artifacts.read(f"artifact:sha256:{ref.artifact}")
    assert stored.startswith(MAGIC) if bench.engine.seal else stored == value
    found = await bench.artifacts.stat(f"artifact:sha256:{ref.artifact}")
    assert found is not None
    assert found.owners == (Owner("thread", NAMESPACE, bench.thread),)
    (listed,) = await bench.engine.contents(bench.thread, await bench.engine.history(bench.thread))
    assert listed.contents["v"] == value
    assert await bench.engine.store.command("HLEN", bench.where.values) == 1


async def test_the_limit_is_exact_and_refusing_is_the_default(store: Store, thread: str) -> None:
    bench = Bench(Engine(store, NAMESPACE, PLAIN), thread)
    done = await bench.commit({"at": Value(b"1" * 1000), "over": Value(b"1" * 1001)})
    assert (done.refs["at"].artifact, done.refs["over"].artifact is None) == (None, False)
    low = CheckpointNamespace(oversize="artifact", value_limit=500)
    done = await Bench(Engine(store, NAMESPACE, low), f"{thread} low").commit({"v": Value(b"1" * 501)})
    assert done.refs["v"].artifact is not None
    refusing = Bench(Engine(store, NAMESPACE, CheckpointNamespace(value_limit=500)), f"{thread} refused")
    with pytest.raises(EncodeError, match="value_limit of 500"):
        await refusing.commit({"v": Value(b"1" * 501)})
    assert await refusing.engine.latest(refusing.thread) is None


async def test_an_unchanged_value_costs_a_reference(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    value = long()
    first = await bench.commit({"v": Value(value)})

    async def never(*_: object, **__: object) -> ArtifactRef:
        raise AssertionError("it was put again")

    monkeypatch.setattr(ArtifactStore, "put", never)
    second = await bench.commit({"v": Value(value)}, first)
    assert second.refs["v"] == first.refs["v"]
    fresh = Bench(Engine(bench.engine.store, NAMESPACE, bench.engine.policy), bench.thread)
    third = await fresh.commit({"v": Value(value)}, second)
    assert third.refs["v"] == first.refs["v"]
    assert await bench.read() == value


async def test_trips(solo: Server, thread: str) -> None:
    """One as ever; what is moved out costs trips of its own, what is unchanged none; a read two more if it is moved out."""
    async with await FaultProxy.start(solo.url) as proxy:
        store = await Store.connect(proxy.url)
        try:
            await _trips(store, proxy, f"{thread} loads the scripts")
            # touch, list, one chunk, complete, refer, and the commit; a read, the head and one chunk
            assert await _trips(store, proxy, thread) == {"short": 1, "long": 6, "unchanged": 1, "read": 3}
        finally:
            await store.close()


async def _trips(store: Store, proxy: FaultProxy, thread: str) -> dict[str, int]:
    bench, value, trips = Bench(Engine(store, NAMESPACE, PLAIN), thread), long(), dict[str, int]()
    done = await bench.commit({"v": Value(b"1")})
    for name, data in {"short": b"2", "long": value, "unchanged": value}.items():
        proxy.reset()
        done = await bench.commit({"v": Value(data)}, done)
        trips[name] = proxy.round_trips
    proxy.reset()
    assert await bench.read() == value
    trips["read"] = proxy.round_trips
    return trips


async def test_a_prune_drops_the_reference_with_the_last_checkpoint(bench: Bench) -> None:
    one, two = long(), long()
    first = await bench.commit({"v": Value(one)})
    second = await bench.commit({"v": Value(two)}, first)
    third = await bench.commit({"v": Value(two)}, second)
    assert len(await bench.held()) == 2
    pruned = await Pruner(bench.engine.store, NAMESPACE).prune(bench.thread, keep_last=2)
    assert (pruned.checkpoints, pruned.values) == (1, 1)
    assert await bench.held() == {third.refs["v"].artifact: "moved"}
    assert not await bench.refers(first.refs["v"].artifact or "")
    assert await bench.refers(third.refs["v"].artifact or "")
    assert await bench.read() == two


async def test_what_was_pruned_and_collected_is_put_again(bench: Bench) -> None:
    """A writer whose base is gone sends the value anew, whatever it believed to be stored."""
    value = long()
    first = await bench.engine.put(bench.thread, "a", step({"v": Value(value)}))
    await bench.engine.put(bench.thread, "b", step({"v": Value(b"1")}))
    await Pruner(bench.engine.store, NAMESPACE).prune(bench.thread, keep_last=1)
    head = keys.ArtifactKeys(first.refs["v"].artifact or "").head
    await bench.engine.store.command("DEL", head)
    await bench.engine.put(bench.thread, "c", step({"v": Value(value)}, first))
    assert await bench.read() == value


@pytest.mark.parametrize("end", ["delete", "finish", "expire"])
async def test_a_thread_that_ends_refers_to_nothing(bench: Bench, end: str) -> None:
    first = await bench.commit({"v": Value(long())})
    digest = first.refs["v"].artifact or ""
    assert await bench.refers(digest)
    if end == "delete":
        await bench.engine.retention.delete(bench.thread)
        assert await bench.held() == {}
    else:
        await bench.engine.retention.close(bench.thread, status="finished", ttl=0.2 if end == "expire" else None)
        assert await bench.refers(digest) or end == "expire"
        if end == "finish":
            return
        assert await bench.engine.store.command("PTTL", bench.where.artifacts) != -1
        for _ in range(500):
            if not await bench.refers(digest):
                break
            await asyncio.sleep(0.01)
    assert not await bench.refers(digest)


@pytest.mark.parametrize("whole", [False, True])
async def test_a_fork_and_a_copy_refer_by_themselves(bench: Bench, whole: bool) -> None:
    value, mentioned = long(), await bench.artifacts.put(os.urandom(10))
    first = await bench.commit({"v": Value(value), "m": Value(json.dumps(str(mentioned)).encode())})
    second = await bench.commit({"v": Value(long())}, first)
    to = f"{bench.thread} fork"
    copier = Copier(bench.engine.store, NAMESPACE, bench.engine.seal, bench.engine.outside)
    if whole:
        await copier.copy(bench.thread, to)
    else:
        await copier.fork(bench.thread, to, checkpoint=first.checkpoint)
    await bench.engine.retention.delete(bench.thread)
    held = await bench.held(to)
    assert sorted(held.values()) == ["mentioned", *["moved"] * (2 if whole else 1)]
    assert not await bench.refers(second.refs["v"].artifact or "")
    found = await bench.engine.at(to, first.checkpoint)
    assert found is not None
    assert found.contents["v"] == value
    for digest in held:
        assert await bench.refers(digest, to)
        stat = await bench.artifacts.stat(f"artifact:sha256:{digest}")
        assert stat is not None
        assert Owner("thread", NAMESPACE, to) in stat.owners


async def test_a_copy_of_what_is_lost_is_refused(bench: Bench) -> None:
    first = await bench.commit({"v": Value(long())})
    await bench.engine.store.command("DEL", keys.ArtifactKeys(first.refs["v"].artifact or "").head)
    with pytest.raises(StoreRegressed, match="artifact"):
        await bench.read()
    copier = Copier(bench.engine.store, NAMESPACE, bench.engine.seal, bench.engine.outside)
    with pytest.raises(StoreRegressed, match="artifact"):
        await copier.copy(bench.thread, f"{bench.thread} copy")


async def test_an_altered_artifact_is_noticed(store: Store, thread: str) -> None:
    bench = Bench(Engine(store, NAMESPACE, SEALED), thread)
    one, two = (await bench.commit({"v": Value(long())})), long()
    other = await Bench(bench.engine, f"{thread} other").commit({"v": Value(two)})
    mine, theirs = (keys.ArtifactKeys(done.refs["v"].artifact or "") for done in (one, other))
    await store.command("DEL", mine.head)
    await store.command("HSET", mine.head, *await store.command("HGETALL", theirs.head))
    upload = (await store.command("HGET", theirs.head, "upload")).decode()
    await store.command("SET", mine.chunk(upload, 0), await store.command("GET", theirs.chunk(upload, 0)))
    with pytest.raises(CorruptValue, match="changed or moved"):
        await bench.read()


class Survey(BaseModel):
    pages: Log[ArtifactRef] = Log()
    text: str = ""


@pytest_asyncio.fixture
async def board(solo: Server) -> AsyncIterator[Blackboard]:
    namespaces = {"checkpoint": {"oversize": "artifact", "artifact_limit": 1000, "durability": "off"}}
    async with Blackboard.open(solo.url, settings=Settings.load(namespaces=namespaces)) as board:
        yield board


async def test_a_run_holds_what_its_state_and_effects_mention(board: Blackboard, thread: str) -> None:
    first, second, third = [await board.artifacts.put(os.urandom(100)) for _ in range(3)]
    async with board.run(thread, Survey, start=Survey) as run:
        run.state.pages.append(first)
        await run.commit()
        await run.effect("fetch", ArtifactRef, semantics="at-least-once").call(lambda: second)
        run.cursors["at"] = str(third)
        run.state.text = "x" * 5000
        await run.commit()
    flat = await board.store.command("HGETALL", keys.ThreadKeys.of(NAMESPACE, thread).artifacts)
    held = {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}
    assert {one for one, kind in held.items() if kind == b"mentioned"} == {first.digest, second.digest, third.digest}
    assert list(held.values()).count(b"moved") == 1
    async with board.run(thread, Survey) as run:
        assert (list(run.state.pages), len(run.state.text)) == ([first], 5000)
        await run.finish()
    assert await board.thread(thread).delete()
    for one in (first, second, third):
        stat = await board.artifacts.stat(one)
        assert stat is not None
        assert stat.owners == (Owner("thread", NAMESPACE, thread),)  # until a collection asks


async def test_a_mention_is_entered_once(board: Blackboard, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the thread stands; one that begins anew under the id is asked for again."""
    ref, entered = await board.artifacts.put(os.urandom(10)), list[str]()
    refer = ArtifactStore.refer

    async def noted(self: ArtifactStore, ref: str, owner: Owner) -> None:
        entered.append(owner.id)
        await refer(self, ref, owner)

    monkeypatch.setattr(ArtifactStore, "refer", noted)
    bench = Bench(board.engine(NAMESPACE), thread)
    said = Value(json.dumps({"page": str(ref), "n": 1}).encode())
    first = await bench.commit({"v": said})
    second = await bench.commit({"v": said}, first)
    await bench.commit({"v": Value(json.dumps({"page": str(ref), "n": 2}).encode())}, second)
    assert entered == [thread]
    await bench.engine.retention.delete(thread)
    await bench.commit({"v": said})
    assert entered == [thread] * 2
    assert await bench.held() == {ref.digest: "mentioned"}


async def test_items_writes_and_dangling_mentions(board: Blackboard, thread: str) -> None:
    refs = [await board.artifacts.put(os.urandom(10)) for _ in range(2)]
    nothing = f"artifact:sha256:{'0' * 64}"
    bench = Bench(board.engine(NAMESPACE), thread)
    items = [json.dumps(str(refs[0])).encode(), json.dumps(nothing).encode()]
    await bench.commit({"log": Items("log", (), items, lambda: items)})
    assert await bench.held() == {refs[0].digest: "mentioned"}
    await bench.engine.put_writes(thread, "000000000001", [Write("t", 0, str(refs[1]).encode())])
    assert await bench.held() == dict.fromkeys((one.digest for one in refs), "mentioned")
    await bench.engine.put_writes(f"{thread} new", "a", [Write("t", 0, str(refs[1]).encode())])
    assert await bench.held(f"{thread} new") == {}


async def test_a_thread_with_artifacts_is_not_exported(bench: Bench) -> None:
    await bench.commit({"v": Value(long())})
    engine = Engine(bench.engine.store, NAMESPACE, CheckpointNamespace())
    with pytest.raises(ConfigError, match="refers to 1 artifacts, and a file of a thread holds none"):
        _ = [line async for line in export_thread(engine, bench.thread)]
    plain = Bench(engine, f"{bench.thread} plain")
    await plain.commit({"v": Value(long())})
    file = BytesIO(b"".join([line async for line in export_thread(engine, plain.thread)]))
    assert await import_thread(engine, file, to=f"{plain.thread} again") == f"{plain.thread} again"
