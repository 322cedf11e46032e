"""H2O: tokens that have gathered the most attention so far stay, and the most recent ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.locale import N_
from kvviz.policies.base import POOLING, Ledger, Policy, pooled, widened
from kvviz.policies.settings import setting


class Accumulated(Ledger):
    """Sum of the attention of all queries so far."""

    def __init__(self, policy: "H2O", layer: int, heads: int) -> None:
        super().__init__(policy, layer, heads)
        self._sums = np.zeros((heads, 0), dtype=np.float32)

    def add(self, count: int, key_norms: np.ndarray) -> None:
        """New slots have no attention yet."""
        self._sums = widened(self._sums, count)

    def see(self, weights: np.ndarray, own: int, choices: np.ndarray) -> None:
        """Add it up."""
        if weights.shape[2] == 1:
            given = pooled(weights[:, :, 0], self.policy.pooling)
        else:
            given = pooled(weights, self.policy.pooling).sum(axis=1)
        self._sums[:, : given.shape[-1]] += given

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """The sums."""
        return self._sums[:, : positions.shape[1]]

    def keep(self, slots: np.ndarray) -> None:
        """Those of the slots that are left."""
        self._sums = np.take_along_axis(self._sums, slots, axis=1)


@dataclass(frozen=True)
class H2O(Policy):
    """Heavy hitters by accumulated attention, per layer and KV head, and a recent part that is protected.

    Zhang et al. 2023, arXiv 2306.14048: the greedy policy of the paper, with sums over the queries so far (the
    repository's language-model evaluation sums over future queries as well, which no cache could do). Sums favour
    early tokens, because more queries have seen them; without the recent part the first `budget` tokens would stay
    for ever.
    """

    recent_share: float = setting(
        0.5, N_("Recent part"), N_("Share of the budget that belongs to the newest tokens."), low=0, high=1
    )
    pooling: str = setting("mean", N_("Pooling"), N_("How query heads that share a key are joined."), choices=POOLING)

    id: ClassVar[str] = "h2o"
    title: ClassVar[str] = N_("H2O")
    rule: ClassVar[str] = N_(
        "Each query's attention is added up per token; of the tokens that are not recent, the one with the smallest "
        "sum goes."
    )
    source: ClassVar[str] = "H2O, arXiv 2306.14048"
    watches: ClassVar[bool] = True

    @property
    def recent(self) -> int:
        """The newest tokens' part of the budget, at least the newest one."""
        return max(1, int(self.budget * self.recent_share))

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger of sums."""
        return Accumulated(self, layer, heads)
