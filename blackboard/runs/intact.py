"""Whether a file is an exported thread, whole and unchanged."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any, BinaryIO, cast

from pydantic import ValidationError

from blackboard import keys
from blackboard.errors import ConfigError
from blackboard.runs.lines import (
    FORMAT,
    VERSION,
    CheckpointLine,
    End,
    Header,
    LetterLine,
    Line,
    LineageLine,
    PinLine,
    SegmentLine,
    WriteLine,
    read,
)
from blackboard.runs.pieces import pieces

__all__ = ["checked"]

LONGEST_HEADER = 1 << 20
"""Bytes of a first line beyond which a file is none of ours."""


def checked(namespace: str, file: BinaryIO) -> Header:
    """Read the whole file and return its header; ConfigError names the line that is wrong and what to do."""
    check = _Check(namespace, getattr(file, "name", "the file"))
    check.header(file.readline(LONGEST_HEADER))
    for data in file:
        check.line(data)
    return check.done()


class _Check:
    """What has been read of a file so far, and whether it can be an export."""

    def __init__(self, namespace: str, name: str) -> None:
        self._name, self._number = name, 0
        self._where = keys.ThreadKeys.of(namespace, "any")
        self._counts: Counter[str] = Counter()
        self._seal = hashlib.sha256()
        self._lineages = {""}
        self._letter = (0, 0)
        self._header: Header | None = None
        self._ended = False

    def header(self, data: bytes) -> None:
        """Read the first line; a foreign or newer format is named as such."""
        self._number = 1
        try:
            said: Any = json.loads(data)
        except ValueError:
            said = None
        if not isinstance(said, dict) or cast("dict[str, Any]", said).get("format") != FORMAT:
            raise self._wrong("this is no exported thread", "give a file that `blackboard export` wrote")
        version: Any = cast("dict[str, Any]", said).get("version")
        if version != VERSION:
            raise self._wrong(
                f"its format is version {version!r}, known here is {VERSION}", "import it with a newer blackboard"
            )
        line = self._read(data)
        assert isinstance(line, Header), "no other line has a format"
        keys.check_id(line.thread, "thread id")
        self._header = line
        self._count(line, data)

    def line(self, data: bytes) -> None:
        """Read another line."""
        self._number += 1
        if self._ended:
            raise self._wrong("something follows the last line", "two files were joined: import each by itself")
        line = self._read(data)
        match line:
            case Header():
                raise self._wrong("this is a second header", "two files were joined: import each by itself")
            case End():
                self._end(line)
            case LineageLine(lineage=lineage):
                self._lineages.add(lineage)
            case CheckpointLine() | PinLine() | WriteLine() | SegmentLine() if line.lineage not in self._lineages:
                raise self._wrong(f"lineage {line.lineage!r} was not named before", "export the thread again")
            case LetterLine(id=spelled):
                self._in_order(spelled)
            case _:
                pass
        self._count(line, data)

    def done(self) -> Header:
        """Return the header once the last line was read."""
        if not self._ended or self._header is None:
            raise self._wrong("the file ends without its last line", "it was cut: export the thread again")
        return self._header

    def _read(self, data: bytes) -> Line:
        if not data.endswith(b"\n"):
            raise self._damaged("the line has no end")
        try:
            line = read(data)
            list(pieces(self._where, line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise self._damaged(f"{place}: {first['msg']}" if place else first["msg"]) from error
        except ValueError as error:
            raise self._damaged(str(error)) from error
        return line

    def _end(self, line: End) -> None:
        if line.counts != dict(self._counts):
            raise self._wrong(
                f"{line.counts} lines were written, {dict(self._counts)} are there", "export the thread again"
            )
        if line.sha256 != self._seal.hexdigest():
            raise self._wrong("the lines are not those that were written (SHA-256 differs)", "export the thread again")
        self._ended = True

    def _in_order(self, spelled: str) -> None:
        time, _, number = spelled.partition("-")
        letter = (int(time), int(number))
        if letter <= self._letter:
            raise self._wrong(f"letter {spelled} comes after a later one", "export the thread again")
        self._letter = letter

    def _count(self, line: Line, data: bytes) -> None:
        self._counts[line.line] += 1
        self._seal.update(data)

    def _damaged(self, what: str) -> ConfigError:
        return self._wrong(f"it is not readable ({what})", "the file was cut or changed: export the thread again")

    def _wrong(self, what: str, mend: str) -> ConfigError:
        return ConfigError(f"{self._name}, line {self._number}: {what}; {mend}", value=self._name, line=self._number)
