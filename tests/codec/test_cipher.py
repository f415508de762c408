"""The cipher alone: known answers, places, keys, and every byte that may be changed."""

import base64
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.codec import cipher, encode
from blackboard.codec.cipher import MAGIC, Seal, opened, sealed
from blackboard.errors import ConfigError, CorruptValue, KeyMissing, NotEncrypted
from blackboard.settings import Encryption

SECRET = {number: base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3)}
PLACE = ("value", "thread", "notes")


def seal(*numbers: int, namespace: str = "checkpoint", **more: Any) -> Seal:
    """Make a seal whose current key is the last of the numbers."""
    keys = {f"k{number}": SECRET[number] for number in numbers}
    made = Seal.of(namespace, Encryption(keys=keys, current=f"k{numbers[-1]}", **more))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("key", "bound", "expected"),
    [
        (b"\x01" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\x03" * 32, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_the_cipher_is_the_published_one(monkeypatch: Any, key: bytes, bound: bytes, expected: str) -> None:
    """The vectors of the C2SP specification, one for each value of the subkey's top bit."""
    monkeypatch.setattr(cipher, "_expand", lambda master, *_: master)
    made = cipher._Key.derive(key, "")
    nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX"
    assert made.encrypt(nonce, b"XAES-256-GCM", bound).hex() == expected
    assert made.decrypt(nonce, bytes.fromhex(expected), bound) == b"XAES-256-GCM"


def test_derived_keys_are_those_of_the_standard() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = cipher._frames(b"blackboard", b"encrypt", "checkpoint")
    assert cipher._expand(b"m" * 32, b"encrypt", "checkpoint") == HKDF(SHA256(), 32, None, info).derive(b"m" * 32)


@given(st.binary(max_size=300), st.lists(st.text(max_size=8), max_size=3), st.binary(max_size=20))
def test_anything_comes_back_where_it_belongs(data: bytes, names: list[str], bound: bytes) -> None:
    made = seal(1)
    body = made.seal(data, "value", "thread", *names, bound=bound)
    assert body.startswith(MAGIC + b"\x01\x02k1")
    assert len(body) == len(MAGIC) + 2 + len("k1") + 24 + len(data) + 16
    assert made.open(body, "value", "thread", *names, bound=bound) == data


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_names_are_not_run_together(one: str, other: str) -> None:
    made = seal(1)
    body = made.seal(b"x", "value", "thread", one, other)
    for place in ((one + other,), (one + other, ""), ("", one + other), (one, other, "")):
        with pytest.raises(CorruptValue, match="changed or moved"):
            made.open(body, "value", "thread", *place)


@pytest.mark.parametrize(
    ("namespace", "place", "bound"),
    [
        ("other", PLACE, b"b"),
        ("checkpoint", ("item", *PLACE[1:]), b"b"),
        ("checkpoint", ("value", "another", "notes"), b"b"),
        ("checkpoint", ("value", "thread", "words"), b"b"),
        ("checkpoint", PLACE, b"c"),
    ],
)
def test_what_was_moved_does_not_open(namespace: str, place: tuple[str, ...], bound: bytes) -> None:
    body = seal(1).seal(b"secret", *PLACE, bound=b"b")
    with pytest.raises(CorruptValue, match="changed or moved"):
        seal(1, namespace=namespace).open(body, *place, bound=bound)


def test_every_changed_byte_is_seen() -> None:
    made = seal(1, 2)
    body = made.seal(b"secret", *PLACE)
    for position in range(len(body)):
        for change in (0x01, 0x80):
            changed = bytearray(body)
            changed[position] ^= change
            with pytest.raises(CorruptValue):
                made.open(bytes(changed), *PLACE)
        with pytest.raises(CorruptValue):
            made.open(body[:position], *PLACE)
    with pytest.raises(CorruptValue):
        made.open(body + b"x", *PLACE)


def test_twice_the_same_is_not_the_same() -> None:
    made = seal(1)
    assert len({made.seal(b"secret", *PLACE) for _ in range(100)}) == 100


def test_an_old_key_reads_and_the_current_one_writes() -> None:
    body = seal(1).seal(b"secret", *PLACE)
    both = seal(1, 2)
    assert both.open(body, *PLACE) == b"secret"
    with pytest.raises(KeyMissing, match="'k2'.*'k1'") as raised:
        seal(1).open(both.seal(b"new", *PLACE), *PLACE)
    assert raised.value.key_id == "k2"


def test_another_key_under_the_same_id_is_not_taken() -> None:
    body = seal(1).seal(b"secret", *PLACE)
    other = Seal.of("checkpoint", Encryption(keys={"k1": SECRET[2]}, current="k1"))
    assert other is not None
    with pytest.raises(CorruptValue, match="changed or moved"):
        other.open(body, *PLACE)


def test_plaintext_is_refused_unless_it_is_accepted() -> None:
    with pytest.raises(NotEncrypted, match="'thread' is not encrypted.*accept_plaintext"):
        seal(1).open(b'"x"', *PLACE)
    assert seal(1, accept_plaintext=True).open(b'"x"', *PLACE) == b'"x"'


def test_without_keys_nothing_sealed_is_shown() -> None:
    assert (sealed(None, b"x", *PLACE), opened(None, b"x", *PLACE)) == (b"x", b"x")
    with pytest.raises(KeyMissing, match="'k1'.*name no key"):
        opened(None, seal(1).seal(b"x", *PLACE), *PLACE)


@given(st.recursive(st.none() | st.text() | st.integers() | st.binary(), st.lists, max_leaves=5))
def test_no_plaintext_looks_sealed(value: Any) -> None:
    assert not encode(value).startswith(MAGIC[:1])


def test_digests_tell_nothing_across_places_and_keys() -> None:
    one, two = seal(1), seal(2)
    assert one.digest(b"x", "thread", "notes") == one.digest(b"x", "thread", "notes")
    digests = [
        one.digest(b"x", "thread", "notes"),
        one.digest(b"x", "other", "notes"),
        one.digest(b"x", "thread", "words"),
    ]
    digests += [two.digest(b"x", "thread", "notes"), seal(1, namespace="other").digest(b"x", "thread", "notes")]
    assert len(set(digests)) == 5
    assert {len(one) for one in digests} == {32}


def test_a_fingerprint_is_found_again_after_a_rotation_and_in_a_copy() -> None:
    stored = seal(1).fingerprint("args", "thread", "pay")
    assert stored.startswith("k1:")
    assert "args" not in stored
    assert seal(1).fingerprint("args", "other", "pay").rpartition(":")[2] != stored.rpartition(":")[2]
    both = seal(1, 2)
    assert both.fingerprint("args", "thread", "pay") != stored
    assert both.fingerprint("args", "copy", "pay", like=stored) == stored
    assert both.fingerprint("other", "copy", "pay", like=stored) != stored
    with pytest.raises(KeyMissing, match="'k1'"):
        seal(2).fingerprint("args", "thread", "pay", like=stored)
    assert seal(1).fingerprint("args", "thread", "pay", like="args") == ""
    assert seal(1, accept_plaintext=True).fingerprint("args", "thread", "pay", like="args") == "args"


def test_the_extra_is_named_if_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"pip install 'agent-blackboard\[crypto\]'"):
        seal(1)


def test_no_key_is_shown() -> None:
    made = seal(1, 2)
    shown = repr(made) + repr(vars(made)) + repr(made._keys)
    assert SECRET[1] not in shown
    assert repr(b"\x01" * 32) not in shown
    assert repr(made) == "<Seal of 'checkpoint' current='k2' keys=['k1', 'k2']>"
