"""Scissorhands: tokens that recent queries passed over most often go."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.locale import N_
from kvviz.policies.base import POOLING, Ledger, Policy, pooled, widened
from kvviz.policies.settings import setting

_LESS = 0.999  # of an equal share; rounding must not decide where all tokens get the same


class PassedOver(Ledger):
    """For each slot: by how many of the last `history` queries it got less than an equal share."""

    def __init__(self, policy: "Scissorhands", layer: int, heads: int) -> None:
        super().__init__(policy, layer, heads)
        self._said = np.zeros((policy.history, heads, 0), dtype=np.uint8)  # of each of the latest queries, in a ring
        self._counts = np.zeros((heads, 0), dtype=np.float32)
        self._next = 0

    def add(self, count: int, key_norms: np.ndarray) -> None:
        """No query has passed over new slots yet."""
        self._said, self._counts = widened(self._said, count), widened(self._counts, count)

    def see(self, weights: np.ndarray, own: int, choices: np.ndarray) -> None:
        """Note who was passed over, and forget what the oldest query said."""
        queries = weights.shape[2]
        for query in range(max(0, queries - self.policy.history), queries):
            visible = own + query + 1
            said, counts = self._said[self._next], self._counts
            counts -= said
            said[:] = 0
            said[:, :visible] = pooled(weights[:, :, query, :visible], self.policy.pooling) < _LESS / choices[query]
            counts += said
            self._next = (self._next + 1) % self.policy.history

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """The less often passed over, the more worth."""
        return -self._counts[:, : positions.shape[1]]

    def keep(self, slots: np.ndarray) -> None:
        """Counts and what was said of the slots that are left."""
        self._counts = np.take_along_axis(self._counts, slots, axis=1)
        self._said = np.take_along_axis(self._said, slots[None], axis=2)


@dataclass(frozen=True)
class Scissorhands(Policy):
    """The least pivotal go: those that most of the last `history` queries gave less than 1 / (tokens they could see).

    Liu et al. 2023, arXiv 2305.17118, algorithm 2, with one token dropped at each step instead of many at once. The
    attention is that of the cache as it is, so an equal share is 1 over the tokens the query could see, not over all
    that were read.
    """

    history: int = setting(64, N_("History"), N_("How many of the latest queries are asked."), low=1, high=1024)
    recent_tokens: int = setting(10, N_("Recent tokens"), N_("Newest tokens that always stay."), low=1, high=1024)
    pooling: str = setting(
        "mean",
        N_("Pooling"),
        N_("How query heads that share a key are joined."),
        choices={each: POOLING[each] for each in ("mean", "max")},  # a sum has no equal share of 1
    )

    id: ClassVar[str] = "scissorhands"
    title: ClassVar[str] = N_("Scissorhands")
    rule: ClassVar[str] = N_(
        "The latest queries are asked how often each token got less than an equal share of their attention; of the "
        "tokens that are not recent, the one passed over most often goes."
    )
    source: ClassVar[str] = "Scissorhands, arXiv 2305.17118"
    watches: ClassVar[bool] = True

    @property
    def recent(self) -> int:
        """At most the whole budget."""
        return min(self.recent_tokens, self.budget)

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger of counts."""
        return PassedOver(self, layer, heads)
