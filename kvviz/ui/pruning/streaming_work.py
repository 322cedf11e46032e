"""The work behind the streaming view: one reading a policy, each kept, so that only what is new is read."""

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import streamlit as st

from kvviz.engine.longtext import text_losses
from kvviz.models.loading import LanguageModel
from kvviz.policies import Full, Policy
from kvviz.ui.house import ModelKey
from kvviz.ui.pruning.streaming_inputs import Wanted
from kvviz.ui.pruning.task import Progress, Turn

_KEPT = 60  # readings a visitor keeps; 12,000 tokens of loss are 48 KB
_FULL = Full()
# about the work of a reading by the default model on two cores, in milliseconds: a token's own, and its attention to
# each of those before it, by the fused kernel and by the walk that evicts
_TOKEN_MS, _PAIR_MS, _WALKED_PAIR_MS = 2.7, 0.0009, 0.0018


@dataclass(frozen=True, eq=False)
class Streamed:
    """Losses of one text, nll of tokens 1 ... T - 1: with the full cache, and by sink count (0: the window)."""

    wanted: Wanted
    lm: LanguageModel
    full: np.ndarray
    by_sinks: Mapping[int, np.ndarray]
    seconds: float  # of reading, for what was not known before

    @property
    def inactive(self) -> bool:
        """Whether the text is too short for anything to be evicted that a query could miss."""
        return len(self.full) <= self.wanted.budget + 1


class Shelf:
    """The readings of one visitor, by model, text and policy; and how fast this machine was."""

    def __init__(self) -> None:
        self.readings: dict[Hashable, np.ndarray] = {}
        self.speed: dict[ModelKey, float] = {}  # seconds it took over seconds it should have taken on two cores

    def get(self, wanted: Wanted, policy: Policy | Full) -> np.ndarray | None:
        """The losses, if they are known."""
        return self.readings.get((wanted.model, wanted.ids, str(policy)))

    def put(self, wanted: Wanted, policy: Policy | Full, losses: np.ndarray) -> None:
        """Keep them, the oldest go."""
        self.readings[wanted.model, wanted.ids, str(policy)] = losses
        while len(self.readings) > _KEPT:
            del self.readings[next(iter(self.readings))]


@st.cache_resource(scope="session", on_release=lambda shelf: shelf.readings.clear(), show_spinner=False)
def shelf() -> Shelf:
    """This visitor's readings; cleared away when the tab closes."""
    return Shelf()


def read_all(lm: LanguageModel, wanted: Wanted, known: Shelf, progress: Progress, turn: Turn) -> Streamed:
    """Read the text with every cache that is not known yet; `progress` gets the share of the work that is done."""
    arms = [_FULL, *(policy for _, policy in wanted.arms)]
    missing = [policy for policy in arms if known.get(wanted, policy) is None]
    costs = [cost(len(wanted.ids), policy) for policy in missing]
    began, done = time.monotonic(), 0.0
    for policy, size in zip(missing, costs, strict=True):
        whole, before = sum(costs), done

        def note(share: float, size: float = size, before: float = before, whole: float = whole) -> None:
            progress((before + size * share) / whole)

        known.put(wanted, policy, text_losses(lm, wanted.ids, policy, progress=note, turn=turn))
        done += size
    spent = time.monotonic() - began
    if missing:
        known.speed[wanted.model] = spent / sum(costs)
    by_sinks = {count: known.get(wanted, policy) for count, policy in wanted.arms}
    return Streamed(wanted, lm, known.get(wanted, _FULL), by_sinks, spent)


def seconds_needed(wanted: Wanted, known: Shelf) -> tuple[float, bool]:
    """About how long a run will take, and whether that is from this machine's speed and not from two cores'."""
    arms = [_FULL, *(policy for _, policy in wanted.arms)]
    work = sum(cost(len(wanted.ids), policy) for policy in arms if known.get(wanted, policy) is None)
    speed = known.speed.get(wanted.model)
    return work * (speed or 1.0), speed is not None


def cost(tokens: int, policy: Policy | Full) -> float:
    """Seconds of one reading of the default model on two cores."""
    if isinstance(policy, Full):
        attention = tokens * tokens / 2 * _PAIR_MS
    else:  # a block of queries is read with all it can see
        attention = tokens * min(tokens, policy.budget + 128) * _WALKED_PAIR_MS
    return (tokens * _TOKEN_MS + attention) / 1000
