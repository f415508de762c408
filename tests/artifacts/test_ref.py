"""A reference is a plain value whose text is found in whatever holds it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from blackboard import Log
from blackboard.artifacts.owner import Owner
from blackboard.artifacts.ref import ArtifactRef, digest_of, mentions
from blackboard.codec import Types, decode, encode
from blackboard.errors import ConfigError, CorruptValue

HEX = "0123456789abcdef" * 4
REF = ArtifactRef(f"artifact:sha256:{HEX}", 7, "text/html", "page.html")


class State(BaseModel):
    page: ArtifactRef
    pages: Log[ArtifactRef] = Log()


def test_its_text_names_it() -> None:
    assert (str(REF), REF.digest) == (f"artifact:sha256:{HEX}", HEX)
    assert digest_of(REF) == digest_of(str(REF)) == HEX
    assert hash(REF) == hash(ArtifactRef(REF.uri, 7, "text/html", "page.html"))


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        HEX,
        f"sha256:{HEX}",
        f"artifact:sha256:{HEX[1:]}",
        f"artifact:sha256:{HEX}0",
        f"artifact:sha256:{HEX.upper()}",
        None,
    ],
)
def test_any_other_text_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="64 hex digits"):
        digest_of(wrong)
    with pytest.raises(ConfigError, match="64 hex digits"):
        ArtifactRef(wrong, 1)


def test_a_state_can_hold_it() -> None:
    state = State(page=REF, pages=Log([REF]))
    stored = encode(REF)
    assert decode(stored, types=Types.of(ArtifactRef)) == REF
    assert mentions(stored) == mentions(state.model_dump_json().encode()) == mentions(repr(state).encode()) == {HEX}


@given(st.binary(), st.lists(st.integers(0, 9), max_size=3), st.binary())
def test_every_mention_is_found(before: bytes, digits: list[int], after: bytes) -> None:
    digests = [f"{digit}" * 64 for digit in digits]
    said = before + b" ".join(f"artifact:sha256:{one}.".encode() for one in digests) + after
    assert mentions(said) >= set(digests)
    assert mentions(json.dumps(digests).encode()) == set()


def test_what_is_longer_or_shorter_is_no_mention() -> None:
    assert mentions(f"artifact:sha256:{HEX}f".encode()) == mentions(f"artifact:sha256:{HEX[1:]} ".encode()) == set()


@given(st.tuples(*[st.text(min_size=1, max_size=20)] * 3).filter(lambda parts: "\ud800" not in "".join(parts)))
def test_an_owner_reads_as_it_is_spelled(parts: tuple[str, str, str]) -> None:
    owner = Owner(*parts)
    try:
        spelled = str(owner)
    except ConfigError:  # a lone surrogate
        return
    assert spelled.count(":") == 2
    assert Owner.parse(spelled) == owner


def test_what_is_no_owner() -> None:
    with pytest.raises(CorruptValue, match="no owner"):
        Owner.parse("somebody")
