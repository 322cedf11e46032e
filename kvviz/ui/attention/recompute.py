"""Rows and maps computed anew when a control asks for them: in turn with all visitors, a few kept per summary."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

from kvviz.summary import AttentionSummary
from kvviz.ui.server import shared_turns


class Sized(Protocol):
    """An array, or a record of arrays."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T")
Kept = TypeVar("Kept", bound=Sized)

_MOST_BYTES = 2**28  # of arrays kept of one summary; the latest stays whatever its size

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
