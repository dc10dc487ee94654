"""CSV files compressed by Zstandard, which ``pyarrow.dataset`` does not recognise by their ending."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tailproof.core.lookup import optional

PACKING = ".zst"
_BLOCK = 1 << 22  # bytes of text that are parsed together


@dataclass(frozen=True, eq=False)
class PackedText:
    """One compressed CSV as a part of a dataset: the few methods of a fragment that readers call.

    Parameters
    ----------
    path : str
    delimiter : str
    convert : callable
        Makes ``pyarrow.csv.ConvertOptions``, with further ones.
    filesystem : pyarrow.fs.FileSystem or None
        None for this machine.
    """

    path: str
    delimiter: str
    convert: Callable[..., Any]
    filesystem: Any = None

    @cached_property
    def physical_schema(self) -> Any:
        """Names and types, as the first rows show them."""
        with self._open() as reader:
            return reader.schema

    def count_rows(self) -> int:
        """Return the number of rows, by reading one column."""
        return sum(batch.num_rows for batch in self.to_batches(self.physical_schema.names[:1]))

    def to_batches(self, columns: list[str], batch_size: int = 0, schema: Any = None) -> Iterator[Any]:
        """Record batches of some columns; their size is that of the blocks of text."""
        types = self.physical_schema if schema is None else schema
        wanted = {name: types.field(name).type for name in columns}
        with self._open(include_columns=columns, column_types=wanted) as reader:
            yield from reader

    def _open(self, **more: Any) -> Any:
        pa, csv, fs = (optional(name, extra="cli") for name in ("pyarrow", "pyarrow.csv", "pyarrow.fs"))
        stream = (self.filesystem or fs.LocalFileSystem()).open_input_stream(self.path, compression=None)
        return csv.open_csv(
            pa.CompressedInputStream(stream, "zstd"),
            read_options=csv.ReadOptions(block_size=_BLOCK),
            parse_options=csv.ParseOptions(delimiter=self.delimiter),
            convert_options=self.convert(**more),
        )
