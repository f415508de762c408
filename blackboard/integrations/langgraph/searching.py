"""Searching a store: what every namespace below a prefix holds, chosen in this process and read again before it is handed out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from langgraph.store.base import SearchItem, SearchOp

from blackboard.errors import EmbedderMismatch
from blackboard.integrations.langgraph.conditions import Test
from blackboard.integrations.langgraph.image import Held, Image
from blackboard.integrations.langgraph.items import search_item, value_of
from blackboard.integrations.langgraph.namespaces import MOST_NAMESPACES, Labels, Namespaces, window
from blackboard.integrations.langgraph.reading import read
from blackboard.memory.embedder import Space
from blackboard.memory.stored import Stored

if TYPE_CHECKING:
    from blackboard.memory.embedder import Floats

__all__ = ["Found", "Images", "Question", "search"]

MOST_ITEMS = 200_000
"""How many items this process keeps in all of what it has read; the namespaces that were searched last stay."""

AT_ONCE = 500
"""Namespaces whose logs are asked for at once."""

ROUNDS = 3
"""How often a search is done again because what it found had changed meanwhile."""

INLINE = 2_000
"""Items up to which choosing is not worth a thread."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """A search that was checked: its filter as a test, and its query as a unit vector of a space if meaning counts."""

    op: SearchOp
    test: Test | None
    vector: Floats | None = None
    space: Space | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """An item that was chosen, where it stands, and its score."""

    image: Image
    held: Held
    score: float | None


class Images:
    """What this process knows of the namespaces that were searched last."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._kept: OrderedDict[Labels, Image] = OrderedDict()

    async def below(self, prefix: Labels) -> list[Image]:
        """Return what every namespace below a prefix holds, with every write acknowledged before the call, in order.

        One round trip if all of it is known and nothing is new: the list of namespaces is read with their logs.
        """
        known = [image for name, image in [*self._kept.items()] if name[: len(prefix)] == prefix]
        if prefix and prefix not in self._kept:
            known.append(self._image(prefix))
        names, _ = await asyncio.gather(self._namespaces.below(prefix), _refresh(known))
        images = {image.namespace: image for image in known}
        new = [self._image(name) for name in names if name not in images]
        await _refresh(new)
        images |= {image.namespace: image for image in new}
        self._keep(images.values())
        return [images[name] for name in sorted(images)]

    def _image(self, namespace: Labels) -> Image:
        if namespace not in self._kept:  # so that searches that begin at the same time share it
            self._kept[namespace] = Image(namespace, self._namespaces.records(namespace))
        return self._kept[namespace]

    def _keep(self, images: Iterable[Image]) -> None:
        """Keep these as the ones used last, and drop what is too much."""
        for image in images:
            self._kept.pop(image.namespace, None)
            if image.token is not None:
                self._kept[image.namespace] = image
        items = sum(len(image.items) for image in self._kept.values())
        while len(self._kept) > MOST_NAMESPACES or items > MOST_ITEMS:
            _, dropped = self._kept.popitem(last=False)
            items -= len(dropped.items)


async def search(images: Images, question: Question, *, together: bool) -> list[SearchItem]:
    """Answer a search: exactly the items that the filter holds for, by score or in order, cut by offset and limit.

    Two round trips if nothing is new; another two when what was found had changed meanwhile. `together`: see `read`.
    """
    op = question.op
    if window(op.limit, op.offset).stop == op.offset:
        return []
    rounds, whole = 0, False
    chosen, stored = list[Found](), list[Stored | None]()
    while not whole and rounds < ROUNDS:
        rounds += 1
        below = await images.below(op.namespace_prefix)
        chosen = await _chosen(below, question)
        stored = await _read(chosen, refresh=op.refresh_ttl, together=together)
        whole = all(_stands(found, one) for found, one in zip(chosen, stored, strict=True))
        for found, one in zip(chosen, stored, strict=True):
            if one is None:
                found.image.drop(found.held)
    return [
        search_item(found.image.namespace, one, found.score)
        for found, one in zip(chosen, stored, strict=True)
        if one is not None and (question.test is None or question.test(value_of(one.record)))
    ]


async def _chosen(images: Sequence[Image], question: Question) -> list[Found]:
    """Choose what is asked for among what is known."""
    if question.space is not None:
        for image in images:
            _same(image, question.space)
    now = images[0].records.store.server_time() // 1000 if images else 0
    await asyncio.gather(*(image.settle(now) for image in images))
    held = [(image, [*image.items.values()]) for image in images]
    return await _worked(sum(len(items) for _, items in held), lambda: _choose(held, question))


def _choose(held: Sequence[tuple[Image, Sequence[Held]]], question: Question) -> list[Found]:
    part, test = window(question.op.limit, question.op.offset), question.test
    found = list[tuple[Image, Held]]()
    for image, items in held:
        found += [(image, one) for one in items if test is None or test(one.value)]
        if question.vector is None and len(found) >= part.stop:
            break
    if question.vector is None:
        return [Found(image, one, None) for image, one in found[part]]
    return _ranked(found, question.vector, part)


def _ranked(found: Sequence[tuple[Image, Held]], vector: Floats, part: slice) -> list[Found]:
    """Take a part of the items in the order of their scores; those that were not indexed come last, in theirs."""
    from blackboard.integrations.langgraph.nearest import nearest

    places, scores = nearest(vector, [one.vectors for _, one in found])
    ranked: list[tuple[int, float | None]] = [*zip(places, scores, strict=True)]
    ranked += [(at, None) for at, (_, one) in enumerate(found) if not one.vectors]
    return [Found(*found[at], score) for at, score in ranked[part]]


async def _refresh(images: Sequence[Image]) -> None:
    for start in range(0, len(images), AT_ONCE):
        await asyncio.gather(*(image.refresh() for image in images[start : start + AT_ONCE]))


async def _read(chosen: Sequence[Found], *, refresh: bool, together: bool) -> list[Stored | None]:
    """Read what was chosen as it is now, namespace by namespace at once."""
    keys: dict[Labels, list[str]] = {}
    records = {found.image.namespace: found.image.records for found in chosen}
    for found in chosen:
        keys.setdefault(found.image.namespace, []).append(found.held.key)
    parts = await asyncio.gather(
        *(read(records[name], part, refresh=refresh, together=together) for name, part in keys.items())
    )
    stored = {
        (name, key): one
        for (name, part), found in zip(keys.items(), parts, strict=True)
        for key, one in zip(part, found, strict=True)
    }
    return [stored[found.image.namespace, found.held.key] for found in chosen]


def _stands(found: Found, stored: Stored | None) -> bool:
    return stored is not None and stored.record.version == found.held.version


def _same(image: Image, space: Space) -> None:
    if image.space not in (None, space.text()):
        raise EmbedderMismatch(
            f"the vectors of {image.namespace} are of the space {image.space}, and the query's would be of "
            f"{space.text()}; use those embeddings, or put the items again under another store namespace",
            stored=image.space,
            offered=space.text(),
        )


async def _worked(size: int, work: Callable[[], T]) -> T:
    return work() if size <= INLINE else await asyncio.to_thread(work)
