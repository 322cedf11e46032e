"""Rows and maps computed anew when a control asks for them: in turn with all visitors, a few kept per summary."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

from kvviz.summary import AttentionSummary
from kvviz.ui.server import shared_turns

T = TypeVar("T")

_MOST = 24  # results kept of one summary

_kept: WeakKeyDictionary[AttentionSummary, OrderedDict[Hashable, object]] = WeakKeyDictionary()
_changes = threading.Lock()


def with_turn(work: Callable[[], T]) -> T:
    """Do `work`, which runs the model, when its turn has come."""
    with shared_turns().take(object(), threading.Event()):
        return work()


def kept(summary: AttentionSummary, key: Hashable, work: Callable[[], T]) -> T:
    """What `work` gives, computed in turn; the last few of each summary are kept under `key`, and go with it."""
    with _changes:
        known = _kept.setdefault(summary, OrderedDict())
        if key in known:
            known.move_to_end(key)
            return known[key]
    found = with_turn(work)
    with _changes:
        known[key] = found
        while len(known) > _MOST:
            known.popitem(last=False)
    return found
