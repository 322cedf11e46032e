"""Rows and maps computed anew when a control asks for them: in turn with all visitors, a few kept per summary."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.summary import AttentionSummary
from kvviz.ui.server import shared_turns

T = TypeVar("T")

_MOST_BYTES = 2**28  # of arrays kept of one summary; the latest stays whatever its size

_kept: WeakKeyDictionary[AttentionSummary, OrderedDict[Hashable, np.ndarray]] = WeakKeyDictionary()
_changes = threading.Lock()


def with_turn(work: Callable[[], T]) -> T:
    """Do `work`, which runs the model, when its turn has come."""
    with shared_turns().take(object(), threading.Event()):
        return work()


def kept(summary: AttentionSummary, key: Hashable, work: Callable[[], np.ndarray]) -> np.ndarray:
    """The array `work` gives, computed in turn; the last of each summary are kept under `key`, and go with it."""
    with _changes:
        known = _kept.setdefault(summary, OrderedDict())
        if key in known:
            known.move_to_end(key)
            return known[key]
    found = with_turn(work)
    with _changes:
        known[key] = found
        while len(known) > 1 and sum(array.nbytes for array in known.values()) > _MOST_BYTES:
            known.popitem(last=False)
    return found
