"""How long a single stored value may be."""

from __future__ import annotations

from blackboard.errors import EncodeError

__all__ = ["within"]


def within(limit: int, data: bytes, what: str, *, path: str) -> bytes:
    """Return the bytes unchanged; EncodeError if there are more than the namespace's `value_limit`. `what` names them."""
    if len(data) > limit:
        raise EncodeError(
            f"{what} has {len(data)} bytes, over the namespace's value_limit of {limit}: store it as an artifact and "
            "refer to it, shorten it, or raise the limit",
            path=path,
        )
    return data
