"""No contract is one that cannot fail: for each there is a saver that is wrong in one way, and the contract finds it."""

import asyncio
import contextlib
import fnmatch
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from blackboard import Blackboard, BlackboardError, Settings
from blackboard.checkpoints.prune import Pruner
from blackboard.errors import ThreadGone
from blackboard.testing.proxy import FaultProxy
from blackboard.testing.servers import Server

pytest.importorskip("langgraph", reason="install agent-blackboard[langgraph]")

from langgraph.checkpoint.memory import InMemorySaver

from blackboard.integrations.langgraph import BlackboardSaver
from blackboard.testing.contracts.savers import Hooks, ProxyWire, SaverContract
from tests.integrations.test_langgraph_contract import hooks

Config = Any


def at(config: Config) -> dict[str, Any]:
    return dict(config["configurable"])


class ForgetsTheId(InMemorySaver):
    def get_tuple(self, config: Config) -> Any:
        found = super().get_tuple(config)
        plain = {key: value for key, value in at(config).items() if key != "checkpoint_id"}
        return found or super().get_tuple({"configurable": plain})


class NewestIsTheLastPut(InMemorySaver):
    def put(self, config: Config, *more: Any) -> Any:
        self.last = super().put(config, *more)
        return self.last

    def get_tuple(self, config: Config) -> Any:
        known = "checkpoint_id" in at(config) or super().get_tuple(config) is None
        return super().get_tuple(config if known else self.last)


class KnowsOnlyStoredIdsAsBefore(InMemorySaver):
    def list(self, config: Config, *, before: Config = None, **asked: Any) -> Any:
        stored = {found.checkpoint["id"] for found in super().list(config)}
        return super().list(
            config, before=before if before and at(before)["checkpoint_id"] in stored else None, **asked
        )


class TakesTheRootForAll(InMemorySaver):
    def list(self, config: Config, **asked: Any) -> Any:
        plain: Any = config and {key: value for key, value in at(config).items() if key != "checkpoint_ns" or value}
        everywhere: Any = plain and {"configurable": plain}
        return super().list(everywhere, **asked)


class FiltersByText(InMemorySaver):
    def list(self, config: Config, *, filter: Any = None, limit: int | None = None, **asked: Any) -> Any:
        found = super().list(config, **asked)
        passing = (f for f in found if all(str(f.metadata.get(k)) == str(v) for k, v in (filter or {}).items()))
        return (one for number, one in enumerate(passing) if limit is None or number < limit)


class DeletesByPattern(InMemorySaver):
    def delete_thread(self, thread_id: str) -> None:
        for thread in [*self.storage]:
            if fnmatch.fnmatchcase(thread, thread_id):
                super().delete_thread(thread)


class SyncIsPoorer(InMemorySaver):
    def list(self, *args: Any, **asked: Any) -> Any:
        for found in super().list(*args, **asked):
            yield found._replace(pending_writes=[])

    async def alist(self, *args: Any, **asked: Any) -> Any:
        for found in super().list(*args, **asked):
            yield found


class KeepsTheFirstPut(InMemorySaver):
    def put(self, config: Config, checkpoint: Any, *more: Any) -> Any:
        named: Config = {"configurable": {**at(config), "checkpoint_id": checkpoint["id"]}}
        return named if self.get_tuple(named) else super().put(config, checkpoint, *more)


class DropsEarlyWrites(InMemorySaver):
    def put_writes(self, config: Config, *more: Any) -> None:
        if self.get_tuple(config):
            super().put_writes(config, *more)


class OverwritesWrites(InMemorySaver):
    def put_writes(self, config: Config, writes: Any, task_id: str, task_path: str = "") -> None:
        known = self.writes[at(config)["thread_id"], at(config)["checkpoint_ns"], at(config)["checkpoint_id"]]
        for key in [key for key in known if key[0] == task_id]:
            del known[key]
        super().put_writes(config, writes, task_id, task_path)


class TurnsWritesRound(InMemorySaver):
    def get_tuple(self, config: Config) -> Any:
        found = super().get_tuple(config)
        return found and found._replace(pending_writes=(found.pending_writes or [])[::-1])


class ReadsModifiesAndWrites(InMemorySaver):
    async def aput_writes(self, config: Config, *more: Any) -> None:
        where = at(config)["thread_id"], at(config)["checkpoint_ns"], at(config)["checkpoint_id"]
        before = dict(self.writes[where])
        await asyncio.sleep(0)
        self.writes[where] = before
        super().put_writes(config, *more)


class OneVersionForAll(InMemorySaver):
    def put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        versions: Any = dict.fromkeys(new_versions, 1)
        made: Any = {**checkpoint, "channel_versions": versions}
        return super().put(config, made, metadata, versions)


class DeletesTheRootAlone(InMemorySaver):
    def delete_thread(self, thread_id: str) -> None:
        self.storage[thread_id].pop("", None)


class RemembersWhatItRead(BlackboardSaver):
    async def aget_tuple(self, config: Config) -> Any:
        known = self.__dict__.setdefault("known", {})
        found = known[str(at(config))] = await super().aget_tuple(config) or known.get(str(at(config)))
        return found


class BringsTheThreadBack(BlackboardSaver):
    """Puts what it has read again when it is told that the thread is gone."""

    async def _again(self, config: Config, work: Any) -> Any:
        known = await self.aget_tuple(config) if "checkpoint_id" in at(config) else None
        try:
            return await work()
        except ThreadGone:
            if known is None:
                raise
            root = {key: value for key, value in at(config).items() if key != "checkpoint_id"}
            await super().aput({"configurable": root}, known.checkpoint, known.metadata, {})
            return await work()

    async def aput(self, config: Config, *more: Any) -> Any:
        return await self._again(config, lambda: BlackboardSaver.aput(self, config, *more))

    async def aput_writes(self, config: Config, *more: Any) -> None:
        await self._again(config, lambda: BlackboardSaver.aput_writes(self, config, *more))


class DropsWhatIsRefused(BlackboardSaver):
    async def aput(self, *args: Any) -> Any:
        with contextlib.suppress(BlackboardError):
            return await super().aput(*args)

    async def aput_writes(self, *args: Any) -> None:
        with contextlib.suppress(BlackboardError):
            await super().aput_writes(*args)


class CountsByItself(BlackboardSaver):
    async def _next(self, config: Config) -> int:
        return int(await self.engine.store.command("INCR", f"count:{at(config)['thread_id']}"))

    async def aput(self, config: Config, checkpoint: Any, *more: Any) -> Any:
        values = {**checkpoint["channel_values"], "count": await self._next(config)}
        counted: Any = {**checkpoint, "channel_values": values}
        return await super().aput(config, counted, *more)

    async def aput_writes(self, config: Config, writes: Sequence[Any], *more: Any) -> None:
        await super().aput_writes(config, [*writes, ("count", await self._next(config))], *more)


class PutsInTwoSteps(BlackboardSaver):
    async def aput(self, config: Config, checkpoint: Any, *more: Any) -> Any:
        part: Any = {**checkpoint, "channel_values": dict(list(checkpoint["channel_values"].items())[:1])}
        await super().aput(config, part, *more)
        return await super().aput(config, checkpoint, *more)


class WritesOneByOne(BlackboardSaver):
    async def aput_writes(self, config: Config, writes: Sequence[Any], *more: Any) -> None:
        for count in range(1, len(writes) + 1):
            await super().aput_writes(config, writes[:count], *more)


class DropsOneByOne(BlackboardSaver):
    async def _drop(self, thread: str) -> None:
        pruner = Pruner(self.engine.store, self.engine.namespace)
        for manifest in (await self.engine.history(thread))[:0:-1]:
            await pruner.drop(thread, [manifest.checkpoint])

    async def adelete_thread(self, thread_id: str) -> None:
        await self._drop(thread_id)
        await super().adelete_thread(thread_id)

    async def aprune(self, thread_ids: Sequence[str], **how: Any) -> None:
        for thread in thread_ids:
            await self._drop(thread)
        await super().aprune(thread_ids, **how)


class CopiesByPutting(BlackboardSaver):
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        found = [one async for one in self.alist({"configurable": {"thread_id": source_thread_id}})]
        for one in reversed(found):
            where = at(one.parent_config or one.config)
            if one.parent_config is None:
                where.pop("checkpoint_id")
            await self.aput(
                {"configurable": {**where, "thread_id": target_thread_id}}, one.checkpoint, one.metadata, {}
            )
            for task, channel, value in one.pending_writes or ():
                named = {**at(one.config), "thread_id": target_thread_id}
                await self.aput_writes({"configurable": named}, [(channel, value)], f"{task}")


@dataclass(frozen=True)
class Mutant:
    """A saver that is wrong, and the contracts that find it."""

    saver: type[Any]
    breaks: tuple[str, ...]
    bases: type[Any]


def memory(saver: type[Any], *breaks: str) -> Mutant:
    return Mutant(saver, breaks, InMemorySaver)


def stored(saver: type[Any], *breaks: str) -> Mutant:
    return Mutant(saver, breaks, BlackboardSaver)


OWNERSHIP = ("two_writers_on_one_parent", "a_stale_owner_is_refused", "a_thread_that_is_owned_takes_no_other_writes")
MUTANTS = (
    memory(ForgetsTheId, "what_is_not_there_is_nothing"),
    memory(NewestIsTheLastPut, "the_newest_is_the_largest_id"),
    memory(KnowsOnlyStoredIdsAsBefore, "lists_are_ordered_and_cut_by_ids"),
    memory(TakesTheRootForAll, "namespaces_are_apart"),
    memory(FiltersByText, "filters_are_exact"),
    memory(DeletesByPattern, "ids_hold_any_character"),
    memory(SyncIsPoorer, "sync_and_async_are_one"),
    memory(KeepsTheFirstPut, "a_put_again_replaces"),
    memory(DropsEarlyWrites, "writes_may_come_before_their_checkpoint"),
    memory(OverwritesWrites, "writes_are_kept_once"),
    memory(TurnsWritesRound, "writes_come_in_the_order_of_their_tasks"),
    memory(ReadsModifiesAndWrites, "writers_at_once_lose_nothing"),
    memory(OneVersionForAll, "branches_share_no_state"),
    memory(DeletesTheRootAlone, "deleting_leaves_nothing"),
    memory(InMemorySaver, "nothing_is_resurrected", "late_writes_are_refused", *OWNERSHIP),
    memory(InMemorySaver, "ownership_is_no_part_of_the_state"),
    stored(RemembersWhatItRead, "an_expired_thread_is_gone_as_a_whole"),
    stored(BringsTheThreadBack, "expiry_in_the_middle_of_a_put", "expiry_in_the_middle_of_pending_writes"),
    stored(DropsWhatIsRefused, "late_writes_are_refused", *OWNERSHIP),
    stored(CountsByItself, "a_lost_reply_is_one_put", "a_lost_reply_is_one_write"),
    stored(PutsInTwoSteps, "a_crash_in_a_first_put", "a_crash_in_a_put"),
    stored(WritesOneByOne, "a_crash_in_pending_writes"),
    stored(DropsOneByOne, "a_crash_in_a_delete", "a_crash_in_a_prune"),
    stored(CopiesByPutting, "a_crash_in_a_copy"),
)
PAIRS = [pytest.param(each, name, id=f"{each.saver.__name__}-{name}") for each in MUTANTS for name in each.breaks]


@contextlib.asynccontextmanager
async def claimed(saver: Any, thread: str) -> AsyncIterator[dict[str, Any]]:
    """What a saver does that says it knows owners, and does not."""
    yield {"lease": f"token of {thread}"}


@contextlib.asynccontextmanager
async def suites(kind: type[Any], url: str) -> AsyncIterator[SaverContract]:
    """The contracts over savers of a kind, with every hook that it has."""
    if issubclass(kind, InMemorySaver):
        kept = kind()

        @contextlib.asynccontextmanager
        async def in_memory() -> AsyncIterator[Any]:
            yield kept

        yield SaverContract(in_memory, Hooks(lease=claimed))
        return
    async with (
        await FaultProxy.start(url) as proxy,
        Blackboard.open(url, settings=Settings(), proof=False) as direct,
    ):

        @contextlib.asynccontextmanager
        async def on_a_server() -> AsyncIterator[Any]:
            async with Blackboard.open(proxy.url, settings=Settings(), proof=False) as board:
                yield kind(board)

        yield SaverContract(on_a_server, hooks(direct, ProxyWire(proxy)))


def test_every_contract_has_a_mutant() -> None:
    assert {name for each in MUTANTS for name in each.breaks} == set(SaverContract.contracts)


@pytest.mark.parametrize(("mutant", "name"), PAIRS)
async def test_is_found(solo: Server, mutant: Mutant, name: str) -> None:
    """By an assertion of the contract; the saver that is not changed is shown to pass, here or in the contract's own tests."""
    async with suites(mutant.saver, solo.url) as suite:
        report = await suite.run([name])
    assert set(report.failed) == {name}, report
    assert report.failed[name].startswith("AssertionError"), report
    if mutant.bases is InMemorySaver is not mutant.saver:
        async with suites(mutant.bases, solo.url) as suite:
            unchanged = await suite.run([name])
        assert unchanged.passed == [name], unchanged
