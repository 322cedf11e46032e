"""Rows and maps computed anew when a control asks for them: in turn with all visitors, a few kept per summary."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.summary import AttentionSummary
from kvviz.ui.server import shared_turns


class Sized(Protocol):
    """An array, or a record of arrays."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T")
Kept = TypeVar("Kept", bound=Sized)

_MOST_BYTES = 2**28  # of arrays kept of one summary; the latest stays whatever its size
_WHOLE_BYTES = 2**26  # all heads' maps of a layer: up to here they are computed at once, and the next row is there

_kept: WeakKeyDictionary[AttentionSummary, OrderedDict[Hashable, Sized]] = WeakKeyDictionary()
_changes = threading.Lock()


def turn() -> AbstractContextManager:
    """One turn at the device."""
    return shared_turns().take(object(), threading.Event())


def with_turn(work: Callable[[], T]) -> T:
    """Do `work`, which runs the model, when its turn has come."""
    with turn():
        return work()


def kept(summary: AttentionSummary, key: Hashable, work: Callable[[], Kept], *, takes_turns: bool = False) -> Kept:
    """What `work` gives, computed in turn; the last of each summary are kept under `key`, and go with it.

    `takes_turns` says that `work` takes its turns itself, several of them.
    """
    with _changes:
        known = _kept.setdefault(summary, OrderedDict())
        if key in known:
            known.move_to_end(key)
            return known[key]
    found = work() if takes_turns else with_turn(work)
    with _changes:
        known[key] = found
        while len(known) > 1 and sum(each.nbytes for each in known.values()) > _MOST_BYTES:
            known.popitem(last=False)
    return found


def rows(summary: AttentionSummary, layer: int, positions: Sequence[int]) -> np.ndarray:
    """`summary.queries`, kept."""
    positions = list(positions)
    if (whole := _whole(summary, layer)) is not None:
        return whole[:, positions]
    return kept(summary, ("rows", layer, *positions), lambda: summary.queries(layer, positions))


def columns(summary: AttentionSummary, layer: int, positions: Sequence[int]) -> np.ndarray:
    """`summary.keys`, kept."""
    positions = list(positions)
    if (whole := _whole(summary, layer)) is not None:
        return whole[:, :, positions]
    return kept(summary, ("columns", layer, *positions), lambda: summary.keys(layer, positions))


def _whole(summary: AttentionSummary, layer: int) -> np.ndarray | None:
    """Maps of all heads of a layer, if they are small enough to keep."""
    heads = next(len(each.received) for each in summary.layers if each.layer == layer)
    if 4 * heads * len(summary.ids) ** 2 > _WHOLE_BYTES:
        return None
    return kept(summary, ("maps", layer), lambda: summary.maps(layer))
