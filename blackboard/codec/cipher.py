"""Encryption at rest: bytes that are stored, sealed for the one place where they belong.

The cipher is XAES-256-GCM (C2SP, XAES-256-GCM): AES-256-GCM under a key that is derived anew for each message from a
192-bit random nonce, half of which goes into the derivation (NIST SP 800-108r1, CMAC in counter mode). Plain AES-GCM with
random nonces is bounded to 2^32 messages per key (NIST SP 800-38D, 8.3), which a busy namespace passes; here the chance
of a collision reaches 2^-32 after 2^80 messages.

A sealed value is the bytes bb 62 62, a version byte, the length of the key id and the key id, the nonce, the ciphertext and its
tag of 16 bytes. All that stands before the nonce is authenticated, and so is the place: a value that was moved to another
namespace, thread, channel, effect or checkpoint does not open.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from blackboard.errors import ConfigError, CorruptValue, KeyMissing, NotEncrypted
from blackboard.settings import Encryption

__all__ = ["MAGIC", "Seal", "opened", "sealed"]

MAGIC = b"\xbbbb"
"""What a sealed value begins with; no text in UTF-8 does, so nothing that the codec writes."""

VERSION = 1
NONCE, TAG = 24, 16
"""Bytes of a nonce and of an authentication tag."""


class Seal:
    """Seals what one namespace stores with its current key, and opens what any of its keys has sealed.

    `kind`, `thread` and `names` say where the bytes belong, `bound` whatever else must not change with them. Made by
    `of`. Keys stand in the settings and nowhere else; no error or repr shows one.
    """

    def __init__(self, namespace: str, masters: Mapping[str, bytes], current: str, *, accept_plaintext: bool) -> None:
        self.namespace, self.current, self.accept_plaintext = namespace, current, accept_plaintext
        self._keys = {key_id: _Key.derive(master, namespace) for key_id, master in masters.items()}
        self._header = MAGIC + bytes((VERSION, len(current))) + current.encode()

    def __repr__(self) -> str:
        return f"<Seal of {self.namespace!r} current={self.current!r} keys={sorted(self._keys)}>"

    @classmethod
    def of(cls, namespace: str, encryption: Encryption | None) -> Seal | None:
        """Return what the settings ask for; None if they ask for no encryption.

        Raises ConfigError if the extra `crypto` is not installed.
        """
        if encryption is None:
            return None
        masters = {key_id: encryption.key(key_id) for key_id in encryption.keys}
        return cls(namespace, masters, encryption.current, accept_plaintext=encryption.accept_plaintext)

    def seal(self, data: bytes, kind: str, thread: str, *names: str, bound: bytes = b"") -> bytes:
        """Encrypt bytes for their place; twice the same bytes give different ones."""
        place = _frames(self._header, self.namespace, kind, thread, *names, bound)
        nonce = os.urandom(NONCE)
        return self._header + nonce + self._keys[self.current].encrypt(nonce, data, place)

    def open(self, data: bytes, kind: str, thread: str, *names: str, bound: bytes = b"") -> bytes:
        """Decrypt what was sealed for this place.

        Raises CorruptValue for bytes that were changed or moved; KeyMissing, naming the key id, if the settings do not
        have the key; NotEncrypted for plaintext, unless it is accepted: then it is returned as it is.
        """
        what = _shown(kind, thread, names)
        if not data.startswith(MAGIC):
            self.check_plaintext(kind, thread, *names)
            return data
        key_id, start = _key_id(data, what)
        if key_id not in self._keys:
            raise KeyMissing(
                f"{what} is encrypted with key {key_id!r}, and namespace {self.namespace!r} has only "
                f"{', '.join(map(repr, sorted(self._keys)))}: add it to namespaces.{self.namespace}.encryption.keys",
                thread=thread, key_id=key_id,
            )  # fmt: skip
        place = _frames(data[:start], self.namespace, kind, thread, *names, bound)
        content = self._keys[key_id].decrypt(data[start : start + NONCE], data[start + NONCE :], place)
        if content is None:
            raise CorruptValue(
                f"{what} is not what was written there: it was changed or moved, or key {key_id!r} of the settings is "
                "another one than it was written with",
                thread=thread,
                key=what,
            )
        return content

    def check_plaintext(self, kind: str, thread: str, *names: str) -> None:
        """Raise NotEncrypted for plaintext at a place, unless the settings accept it."""
        if not self.accept_plaintext:
            raise NotEncrypted(
                f"{_shown(kind, thread, names)} is not encrypted, but namespace {self.namespace!r} is: to read what was "
                f"stored before, set namespaces.{self.namespace}.encryption.accept_plaintext and copy the thread",
                thread=thread, namespace=self.namespace,
            )  # fmt: skip

    def digest(self, data: bytes, *names: str) -> str:
        """Name bytes by their content and their place, 32 characters; without the key nobody can tell which content."""
        return self._keys[self.current].mac(_frames(self.namespace, *names) + data)

    def fingerprint(self, plain: str, thread: str, effect: str, *, like: str = "") -> str:
        """Spell a fingerprint so that nobody can try arguments on it: `<key id>:<origin>:<keyed digest>`.

        `like` is one that is stored, whose key and origin are used: the key may have been replaced since, and an effect
        that was copied keeps the origin of its thread. One from before the encryption is compared as it is, if the
        settings accept plaintext. Raises KeyMissing.
        """
        if like and ":" not in like:
            return plain if self.accept_plaintext else ""
        key_id, _, rest = like.partition(":")
        key_id = key_id or self.current
        if key_id not in self._keys:
            raise KeyMissing(
                f"the fingerprint of effect {effect!r} of thread {thread!r} was made with key {key_id!r}, which namespace "
                f"{self.namespace!r} does not have",
                thread=thread, key_id=key_id,
            )  # fmt: skip
        key = self._keys[key_id]
        origin = rest.partition(":")[0] or key.mac(_frames("origin", self.namespace, thread))
        return f"{key_id}:{origin}:{key.mac(_frames('fingerprint', self.namespace, origin, effect, plain))}"


def sealed(seal: Seal | None, data: bytes, kind: str, thread: str, *names: str) -> bytes:
    """Seal bytes where the namespace is encrypted; see `Seal.seal`."""
    return data if seal is None else seal.seal(data, kind, thread, *names)


def opened(seal: Seal | None, data: bytes, kind: str, thread: str, *names: str) -> bytes:
    """Open bytes where the namespace is encrypted, and refuse sealed ones with KeyMissing where it is not."""
    if seal is not None:
        return seal.open(data, kind, thread, *names)
    if data.startswith(MAGIC):
        _no_key(data, kind, thread, *names)
    return data


def _no_key(data: bytes, kind: str, thread: str, *names: str) -> NoReturn:
    what = _shown(kind, thread, names)
    key_id, _ = _key_id(data, what)
    raise KeyMissing(
        f"{what} is encrypted with key {key_id!r}, and the settings of its namespace name no key: set encryption.keys and "
        "encryption.current",
        thread=thread, key_id=key_id,
    )  # fmt: skip


def _key_id(data: bytes, what: str) -> tuple[str, int]:
    """Read the id of the key of a sealed value, and where its nonce begins."""
    start = len(MAGIC) + 2
    end = start + (data[start - 1] if len(data) >= start else 0)
    key_id = data[start:end]
    if len(data) < end + NONCE + TAG or data[len(MAGIC)] != VERSION or not key_id.isascii():
        raise CorruptValue(f"{what} is encrypted in no form that this release knows, or was changed", key=what)
    return key_id.decode(), end


def _shown(kind: str, thread: str, names: tuple[str, ...]) -> str:
    named = " ".join(repr(name) for name in names if name)
    whose = f" of thread {thread!r}" if thread else ""
    return f"{kind} {named}{whose}" if named else f"{kind}{whose}"


def _frames(*parts: str | bytes) -> bytes:
    """Join parts so that different ones never give the same bytes."""
    raw = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join([b"%d:%b" % (len(part), part) for part in raw])


@dataclass(frozen=True, slots=True, repr=False)
class _Key:
    """What is derived from one key of the settings: a cipher, and a key for digests."""

    blocks: Any
    mask: int
    name: bytes
    gcm: Any
    invalid: type[Exception]

    @classmethod
    def derive(cls, master: bytes, namespace: str) -> _Key:
        """Derive both by HKDF-SHA256 (RFC 5869), another for each namespace and use."""
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as missing:
            raise ConfigError(
                "encryption needs the package cryptography: pip install 'agent-blackboard[crypto]'",
                value="cryptography",
            ) from missing
        cipher = Cipher(algorithms.AES(_expand(master, b"encrypt", namespace)), modes.ECB())  # noqa: S305 - single blocks of a derivation, no data
        blocks = cipher.encryptor()
        return cls(
            blocks, _doubled(blocks.update(bytes(16))), _expand(master, b"digest", namespace), AESGCM, InvalidTag
        )

    def encrypt(self, nonce: bytes, data: bytes, place: bytes) -> bytes:
        """Encrypt under the message's own key."""
        made: bytes = self.gcm(self._message_key(nonce)).encrypt(nonce[12:], data, place)
        return made

    def decrypt(self, nonce: bytes, data: bytes, place: bytes) -> bytes | None:
        """Decrypt; None for what was not encrypted by this key for this place."""
        try:
            content: bytes = self.gcm(self._message_key(nonce)).decrypt(nonce[12:], data, place)
        except self.invalid:
            return None
        return content

    def mac(self, data: bytes) -> str:
        """Keyed BLAKE2b of 192 bits (RFC 7693), 32 characters."""
        return base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=24, key=self.name).digest()).decode()

    def _message_key(self, nonce: bytes) -> bytes:
        half = int.from_bytes(nonce[:12])
        first, second = ((0x0001_5800 + (step << 16)) << 96 | half for step in (0, 1))
        key: bytes = self.blocks.update((first ^ self.mask).to_bytes(16) + (second ^ self.mask).to_bytes(16))
        return key


def _doubled(block: bytes) -> int:
    """Derive the subkey K1 of CMAC (NIST SP 800-38B)."""
    value = int.from_bytes(block) << 1
    return value ^ (1 << 128) ^ 0x87 if value >> 128 else value


def _expand(master: bytes, use: bytes, namespace: str) -> bytes:
    """HKDF-SHA256 (RFC 5869) without salt, for one block of output."""
    random = hmac.digest(bytes(32), master, "sha256")
    return hmac.digest(random, _frames(b"blackboard", use, namespace) + b"\x01", "sha256")
