"""The views of one process: kept between uses, of the paths used last."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from blackboard.memory.embedder import Space
from blackboard.memory.records import Records
from blackboard.memory.view import View

__all__ = ["Views"]

MOST_VIEWS = 64
"""Of how many paths the view is kept; another one costs reading its path anew."""


class Views:
    """One view for each path and space. `records` gives the records of a path of a namespace. Belongs to one event loop."""

    def __init__(self, records: Callable[[str, str], Records]) -> None:
        self.records = records
        self._views: OrderedDict[tuple[str, str, str], View] = OrderedDict()

    def of(self, namespace: str, path: str, space: Space | None) -> View:
        """Return the view of a path; one that is dropped for it goes on for whoever holds it."""
        place = (namespace, path, "" if space is None else space.text())
        view = self._views.pop(place, None)
        if view is None:
            records = self.records(namespace, path)
            view = View(records, space, records.policy)
        self._views[place] = view
        if len(self._views) > MOST_VIEWS:
            self._views.popitem(last=False)
        return view

    async def close(self) -> None:
        """Stop what views do in the background."""
        views = [*self._views.values()]
        self._views.clear()
        await asyncio.gather(*(view.close() for view in views))
