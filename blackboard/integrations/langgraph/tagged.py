"""A serialized value in one piece: what its serializer calls the bytes, and the bytes."""

from __future__ import annotations

from urllib.parse import unquote

__all__ = ["tagged", "untagged"]


def tagged(kind: str, data: bytes) -> bytes:
    """Put the kind in front of the bytes; a colon in it is percent-encoded, for one ends it."""
    return kind.replace("%", "%25").replace(":", "%3A").encode() + b":" + data


def untagged(data: bytes) -> tuple[str, bytes]:
    """Undo `tagged`."""
    kind, _, body = data.partition(b":")
    return unquote(kind.decode()), body
