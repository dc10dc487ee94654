"""Codecs of the columns of a Parquet file, from its footer.

pyarrow ends the whole process where a footer names a codec that nobody knows, so it cannot be asked.
"""

from __future__ import annotations

import os
from typing import Any

UNCOMPRESSED = 0
_MOST_BYTES = 1 << 22  # of a footer: more take longer than they save
_ROW_GROUPS, _COLUMNS, _META_DATA, _CODEC = 4, 1, 3, 4  # fields, as parquet.thrift numbers them
_LONGEST_NUMBER = 10  # bytes


def codecs_of_columns(path: str) -> list[list[int]]:
    """Codec of every column of every row group; empty where the footer is not understood."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or not 0 < length <= min(size - 12, _MOST_BYTES):
            return []
        file.seek(size - 8 - length)
        footer = file.read(length)
    try:
        groups = _Thrift(footer).struct()[_ROW_GROUPS]
        return [[int(column[_META_DATA][_CODEC]) for column in group[_COLUMNS]] for group in groups]
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
        return []


class _Thrift:
    """Values of Thrift's compact protocol, one after another; text is passed over."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0
        self.kinds = {
            1: lambda: True,
            2: lambda: False,
            3: self.byte,
            4: self.signed,
            5: self.signed,
            6: self.signed,
            7: lambda: self.skip(8),
            8: lambda: self.skip(self.number()),
            9: self.list,
            12: self.struct,
        }

    def byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def number(self) -> int:
        found = 0
        for place in range(_LONGEST_NUMBER):
            byte = self.byte()
            found |= (byte & 127) << (7 * place)
            if byte < 128:
                return found
        raise ValueError("a number has no end")

    def signed(self) -> int:
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def skip(self, size: int) -> None:
        self.at += size

    def list(self) -> list[Any]:
        head = self.byte()
        size, kind = head >> 4 if head < 0xF0 else self.number(), head & 15
        read = self.byte if kind in (1, 2) else self.kinds[kind]
        return [read() for _ in range(size)]

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.signed()
            fields[field] = self.kinds[head & 15]()
        return fields
