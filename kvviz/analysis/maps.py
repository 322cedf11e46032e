"""Maps of attention small enough to draw: pooled by the largest value, with ranks and with keys left out."""

from collections.abc import Collection

import numpy as np

from kvviz.analysis.attention import is_sink, mean_received
from kvviz.records import LayerMeasures, MapView

CELLS = 256  # a side of a map that is drawn


def cell_of(queries: range, keys: range) -> tuple[int, int]:
    """Queries and keys of a cell, so that neither side of a map has more than `CELLS`."""
    return max(1, -(-len(queries) // CELLS)), max(1, -(-len(keys) // CELLS))


def pool(values: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    """The largest number of every cell of that many rows and columns (fewer at the edges); NaN where there is none."""
    for axis, tokens in enumerate(cell):
        if tokens > 1:
            values = np.fmax.reduceat(values, range(0, values.shape[axis], tokens), axis=axis)
    return values


def ranks(row: np.ndarray) -> np.ndarray:
    """1 for the largest of a row (equal ones share the better rank); NaN stays."""
    known = np.sort(row[~np.isnan(row)])
    rank = 1 + len(known) - np.searchsorted(known, row, side="right")
    return np.where(np.isnan(row), np.nan, rank).astype(np.float32)


def sink_columns(
    layer: LayerMeasures, head: int | str, epsilon: float = 0.3, *, diagonal: bool = True
) -> tuple[int, ...]:
    """Positions that are sinks in one head, in the "mean" of the layer's heads, or in any of them ("max")."""
    received = mean_received(layer, diagonal)
    of = {"mean": lambda: received.mean(axis=0), "max": lambda: received.max(axis=0)}.get(head, lambda: received[head])
    return tuple(np.flatnonzero(is_sink(of(), epsilon)).tolist())


class MapBuilder:
    """A `MapView` put together from blocks of whole rows."""

    def __init__(
        self,
        queries: range,
        keys: range,
        choices: np.ndarray,
        norms: np.ndarray | None = None,
        hidden: Collection[int] = (),
    ) -> None:
        self._queries, self._keys, self._cell = queries, keys, cell_of(queries, keys)
        self._choices, self._norms, self._hidden = choices, norms, tuple(sorted(hidden))
        shape = (-(-len(queries) // self._cell[0]), -(-len(keys) // self._cell[1]))
        names = ["probability", "times_uniform", "others", *(["contribution"] if norms is not None else [])]
        self._arrays = {name: np.full(shape, np.nan, dtype=np.float32) for name in names}
        self._rank = np.full(shape, np.nan, dtype=np.float32) if self._cell == (1, 1) else None
        self._mass = np.zeros(len(queries), dtype=np.float32)

    def add(self, start: int, rows: np.ndarray) -> None:
        """Take in `rows` (count, keys from 0 on), the first of them query `start`, NaN where it may not look."""
        count = len(rows)
        part = np.full((count, len(self._keys)), np.nan, dtype=np.float32)
        seen = rows[:, self._keys.start : self._keys.stop]
        part[:, : seen.shape[1]] = seen
        hidden = [key for key in self._hidden if key < rows.shape[1]]
        at = start - self._queries.start
        self._mass[at : at + count] = np.nansum(rows[:, hidden], axis=1)
        self._largest("probability", at, part)
        self._largest("times_uniform", at, part * self._choices[start : start + count, None])
        if self._norms is not None:
            self._largest("contribution", at, part * self._norms[self._keys.start : self._keys.stop])
        if self._rank is not None:
            for index, row in enumerate(rows):
                of_keys = ranks(row)[self._keys.start : self._keys.stop]
                self._rank[at + index, : len(of_keys)] = of_keys
        part[:, [key - self._keys.start for key in self._hidden if key in self._keys]] = np.nan
        self._largest("others", at, part)

    def _largest(self, name: str, at: int, part: np.ndarray) -> None:
        lead = at % self._cell[0]  # rows that belong to a cell begun by the block before
        filled = np.concatenate([np.full((lead, part.shape[1]), np.nan, dtype=np.float32), part])
        cells = pool(filled, self._cell)
        first = at // self._cell[0]
        known = self._arrays[name][first : first + len(cells)]
        np.fmax(known, cells, out=known)

    def view(self) -> MapView:
        """What has been taken in."""
        arrays = {"contribution": None} | self._arrays
        return MapView(
            self._queries,
            self._keys,
            self._cell,
            rank=self._rank,
            hidden=self._hidden,
            hidden_mass=self._mass,
            **arrays,
        )
