"""Values to bytes and back: exact, self-describing JSON text; no pickle, no import by name."""

from __future__ import annotations

from blackboard.codec.decoding import decode
from blackboard.codec.encoding import encode, join, key_place
from blackboard.codec.opaque import Opaque
from blackboard.codec.types import Types

__all__ = ["Opaque", "Types", "decode", "encode", "join", "key_place"]
