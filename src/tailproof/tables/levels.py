"""Text columns as codes: every different text once, and for each row which of them it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of texts.

    Attributes
    ----------
    levels : pyarrow.Array
        Different texts, none of them missing; some may not occur.
    codes : pyarrow.ChunkedArray of int32
        Place of each row's text among the levels, null where it is missing.
    """

    levels: Any
    codes: Any

    @property
    def missing(self) -> int:
        """Rows without a text."""
        return int(self.codes.null_count)

    def counts(self) -> NDArray[np.int64]:
        """How often each level occurs."""
        found = np.zeros(len(self.levels), dtype=np.int64)
        for chunk in self.codes.drop_null().chunks:
            found += np.bincount(chunk.to_numpy(), minlength=found.size)
        return found

    def occurring(self) -> tuple[Any, NDArray[np.int64]]:
        """Levels that occur, and how often."""
        counts = self.counts()
        some = np.flatnonzero(counts)
        return self.levels.take(some), counts[some]

    def translated(self, known: list[str], unknown: int, missing: int) -> Any:
        """Place of each row's text among other levels, or the place for what is not there.

        Parameters
        ----------
        known : list of str
        unknown, missing : int
            Places for texts that are not known, and for rows without one.

        Examples
        --------
        >>> import pyarrow as pa
        >>> coded(pa.chunked_array([["red", None, "blue"]])).translated(["blue"], 7, 9).to_pylist()
        [7, 9, 0]
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        there = pc.fill_null(pc.index_in(self.levels, value_set=pa.array(known, pa.string())), unknown)
        places = np.append(there.to_numpy(), missing).astype(np.int32)
        codes = pc.fill_null(self.codes, len(self.levels))
        return pa.chunked_array([places[chunk.to_numpy()] for chunk in codes.chunks], pa.int32())


def coded(values: Any) -> Coded:
    """Codes of a column of texts or of a dictionary; the latter costs next to nothing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> found = coded(pa.chunked_array([["red", "blue"], ["red", None]]))
    >>> found.levels.to_pylist(), found.codes.to_pylist()
    (['red', 'blue'], [0, 1, 0, None])
    """
    import pyarrow as pa

    chunks = dictionary(values).chunks
    levels = chunks[0].dictionary.cast(pa.string()) if chunks else pa.array([], pa.string())
    if levels.null_count or len(levels.unique()) < len(levels):  # a dictionary may be anything
        return coded(texts(values))
    return Coded(levels, pa.chunked_array([chunk.indices.cast(pa.int32()) for chunk in chunks], pa.int32()))


def dictionary(values: Any) -> Any:
    """Return a column of texts as a dictionary, which all its chunks share."""
    import pyarrow as pa

    found = values if pa.types.is_dictionary(values.type) else texts(values).dictionary_encode()
    return found.unify_dictionaries()


def texts(values: Any) -> Any:
    """Values of a column as texts."""
    import pyarrow as pa

    return values.cast(pa.string())
