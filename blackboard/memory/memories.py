"""The memories of one board: what is known of a path is kept between uses, of the paths used last."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from blackboard.artifacts.store import ArtifactStore
from blackboard.memory.embedder import Embedder, Space, for_settings
from blackboard.memory.memory import Memory
from blackboard.memory.mentions import Mentions
from blackboard.memory.paths import Paths
from blackboard.memory.records import Records
from blackboard.memory.sets import refuse
from blackboard.memory.upkeep import Tending
from blackboard.settings import Settings
from blackboard.store.client import Store

if TYPE_CHECKING:
    from blackboard.memory.views import Views

__all__ = ["Memories"]

MOST_PATHS = 256
"""Of how many paths the last token is remembered; of one beyond it is learned anew, which costs nothing but that check."""


class Memories:
    """Opens memories on one store. Nothing is sent by that."""

    def __init__(self, store: Store, settings: Settings, artifacts: ArtifactStore | None = None) -> None:
        self.store, self.settings, self._artifacts = store, settings, artifacts
        self._records: OrderedDict[tuple[str, str], Records] = OrderedDict()
        self._paths: dict[str, Paths] = {}
        self._embedders: dict[str, Embedder | None] = {}
        self._views: Views | None = None
        self._tending = Tending()

    def open(self, path: str, namespace: str, embedder: Embedder | None) -> Memory:
        """Return the memory of a path, which is spelled as `keys.path_text` does; ConfigError for an unknown namespace."""
        policy = self.settings.memory_namespace(namespace)
        if namespace not in self._paths:
            self._paths[namespace] = Paths(self.store, namespace)
        if embedder is None:
            if namespace not in self._embedders:
                self._embedders[namespace] = for_settings(policy.embedding)
            embedder = self._embedders[namespace]
        if embedder is not None:
            refuse(policy, Space.of(embedder))
        return Memory(self.records(namespace, path), self._paths[namespace], embedder, self.views, self._tending)

    def records(self, namespace: str, path: str) -> Records:
        """Return the records of a path, and with them what this process knows of how far it has come."""
        place = (namespace, path)
        records = self._records.pop(place, None)
        if records is None:
            mentions = None if self._artifacts is None else Mentions(self._artifacts, namespace, path)
            records = Records(self.store, namespace, path, self.settings.memory_namespace(namespace), mentions)
        self._records[place] = records
        if len(self._records) > MOST_PATHS:
            self._records.popitem(last=False)
        return records

    def views(self) -> Views:
        """Return the views of all paths; the packages of the extra `memory` are needed from here on."""
        if self._views is None:
            from blackboard.memory.views import Views

            self._views = Views(self.records)
        return self._views

    async def close(self) -> None:
        """Stop what goes on in the background."""
        await self._tending.close()
        if self._views is not None:
            await self._views.close()
