"""A store's namespaces: paths of a memory namespace, found by their list and told apart label by label."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import cast

from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from blackboard import keys
from blackboard.artifacts.store import ArtifactStore
from blackboard.errors import ConfigError
from blackboard.memory.mentions import Mentions
from blackboard.memory.paths import Paths
from blackboard.memory.records import Records
from blackboard.settings import MemoryNamespace

__all__ = ["MOST_NAMESPACES", "Labels", "Namespaces", "labelled", "labels", "window"]

Labels = tuple[str, ...]
"""A namespace: labels that are compared byte by byte."""

MOST_NAMESPACES = 4096
"""Of how many namespaces it is remembered how far they have come; of one beyond it is learned anew, which costs but that check."""

PAGE = 1000
"""Paths read in one round trip."""

COUNTED = 200
"""Namespaces whose items are counted at once."""


class Namespaces:
    """The namespaces of one store. A path that was written once stays listed; whether it holds anything, its records say."""

    def __init__(self, paths: Paths, policy: MemoryNamespace, artifacts: ArtifactStore) -> None:
        self._paths, self._policy, self._artifacts = paths, policy, artifacts
        self._records: OrderedDict[Labels, Records] = OrderedDict()

    async def enter(self, namespace: Labels) -> None:
        """List a namespace, before its first item is written from here."""
        await self._paths.enter(keys.path_text(namespace))

    def records(self, namespace: Labels) -> Records:
        """Return the records of a namespace, and with them what is known of how far it has come; ConfigError if it is no path."""
        records = self._records.pop(namespace, None)
        if records is None:
            path = keys.path_text(namespace)
            mentions = Mentions(self._artifacts, self._paths.namespace, path)
            records = Records(self._paths.store, self._paths.namespace, path, self._policy, mentions)
        self._records[namespace] = records
        if len(self._records) > MOST_NAMESPACES:
            self._records.popitem(last=False)
        return records

    async def below(self, prefix: Labels) -> list[Labels]:
        """List every namespace that begins with these labels and was written once, itself included, in order."""
        tops = [keys.path_text(prefix)] if prefix else [top async for top in self._tops()]
        parts = await asyncio.gather(*map(self._under, tops))
        return sorted(keys.path_segments(path) for part in parts for path in part)

    async def listed(self, op: ListNamespacesOp) -> list[Labels]:
        """List the namespaces that hold items and meet every condition, cut to `max_depth`, each once, in order."""
        part = window(op.limit, op.offset)
        if op.max_depth is not None and (type(op.max_depth) is not int or op.max_depth < 1):
            raise ConfigError(f"max_depth is a whole number of at least 1, got {op.max_depth!r}", value=op.max_depth)
        conditions = [*(op.match_conditions or ())]
        names = [
            namespace
            for namespace in await self.below(_common(conditions))
            if all(_matches(condition, namespace) for condition in conditions)
        ]
        found: list[Labels] = []
        for start in range(0, len(names), COUNTED):
            some = names[start : start + COUNTED]
            counts = await asyncio.gather(*(self.records(namespace).count() for namespace in some))
            for namespace, count in zip(some, counts, strict=True):
                shown = namespace[: op.max_depth]
                if count and found[-1:] != [shown]:
                    found.append(shown)
            if len(found) >= part.stop:
                break
        return found[part]

    async def _tops(self) -> AsyncIterator[str]:
        after = ""
        while page := await self._paths.tops(PAGE, after):
            for top in page:
                yield top
            after = page[-1]

    async def _under(self, path: str) -> list[str]:
        found, after = [path], ""
        while page := await self._paths.below(path, PAGE, after):
            found += page
            after = page[-1]
            if len(page) < PAGE:
                break
        return found


def labelled(op: Op) -> Op:
    """Return an op whose namespace is a tuple of labels; ConfigError for what is no op, and for what names no namespace."""
    match op:
        case GetOp() | PutOp():
            return op._replace(namespace=labels(op.namespace))
        case SearchOp():
            return op._replace(namespace_prefix=labels(op.namespace_prefix))
        case ListNamespacesOp():
            for condition in op.match_conditions or ():
                labels(condition.path)
            return op
        case _:
            raise ConfigError(f"no operation of a store: {op!r}", value=op)


def labels(given: object) -> Labels:
    """Return a namespace as a tuple; ConfigError for a text, whose characters would be taken for labels."""
    if not isinstance(given, (tuple, list)):
        raise ConfigError(f"a namespace is a tuple of labels, as ('users', 'ada'); got {given!r}", value=given)
    return tuple(cast("Sequence[str]", given))


def window(limit: int, offset: int) -> slice:
    """Say which part of a list is asked for; ConfigError for numbers that name none."""
    for name, number in (("limit", limit), ("offset", offset)):
        if type(number) is not int or number < 0:
            raise ConfigError(f"{name} is a whole number from 0, got {number!r}", value=number)
    return slice(offset, offset + limit)


def _common(conditions: Sequence[MatchCondition]) -> Labels:
    """Return the longest labels that every namespace meeting the conditions begins with."""
    found: Labels = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = condition.path
            plain = path.index("*") if "*" in path else len(path)
            found = max(found, tuple(path[:plain]), key=len)
        elif condition.match_type != "suffix":
            raise ConfigError(f"a condition matches a prefix or a suffix, got {condition.match_type!r}")
    return found


def _matches(condition: MatchCondition, namespace: Labels) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
