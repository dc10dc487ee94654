"""CSV text by pyarrow: the quick way, unless a line ends within quotes, which it would cut apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailproof.core.lookup import optional
from tailproof.native.tables import Quotes
from tailproof.tables.dialect import Dialect


class FollowedText:
    """A stream whose quotes are followed while somebody reads it, as a file of Python.

    Parameters
    ----------
    stream : pyarrow.NativeFile
    delimiter : str
    """

    def __init__(self, stream: Any, delimiter: str) -> None:
        self._stream, self.quotes = stream, Quotes(delimiter)

    def read(self, size: int = -1) -> Any:
        """The next bytes."""
        piece = self._stream.read_buffer(size if size >= 0 else None)
        self.quotes.follow(piece)
        return piece

    @property
    def closed(self) -> bool:
        """Whether the stream is."""
        return bool(self._stream.closed)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def are_plain(sample: bytes, dialect: Dialect) -> bool:
    r"""Whether the start of a text has no quotes that the quick way could stumble over.

    Examples
    --------
    >>> are_plain(b'a,"b,c"\n', Dialect(delimiter=",")), are_plain(b'a,"b\nc"\n', Dialect(delimiter=","))
    (True, False)
    """
    quotes = Quotes(str(dialect.delimiter))
    quotes.follow(sample)
    return quotes.plain


def read_text(
    stream: Callable[[], Any], delimiter: str, reading: Any, conversion: Any, quoted: bool = False
) -> Any:
    """Table of a CSV; read again, with an eye on every quote, where some are not plain.

    Parameters
    ----------
    stream : callable
        Opens the text at its start.
    delimiter : str
    reading, conversion : pyarrow.csv.ReadOptions, pyarrow.csv.ConvertOptions
    quoted : bool
        Whether it is known that they are not.
    """
    arrow_csv, pa = optional("pyarrow.csv", extra="cli"), optional("pyarrow", extra="cli")
    if not quoted:
        with stream() as file:
            text = FollowedText(file, delimiter)
            try:
                table = arrow_csv.read_csv(
                    text, reading, arrow_csv.ParseOptions(delimiter=delimiter), conversion
                )
            except pa.ArrowInvalid:
                if text.quotes.plain:
                    raise
            if text.quotes.plain:
                return table
    parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with stream() as file:
        return arrow_csv.read_csv(file, reading, parsing, conversion)
