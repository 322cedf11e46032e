"""SnapKV: at the end of the prompt its last tokens vote on what stays; later tokens are all kept."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.policies.base import POOLING, Ledger, Policy, pooled
from kvviz.policies.settings import setting

_SMOOTHING = {"mean": N_("mean of the neighbours"), "max": N_("largest of the neighbours")}


class Votes(Ledger):
    """What the last `window` queries of the prompt gave to each token, smoothed over its neighbours."""

    def __init__(self, policy: "SnapKV", layer: int, heads: int) -> None:
        super().__init__(policy, layer, heads)
        self._latest: list[np.ndarray] = []  # of each query (kv_heads, slots it could see)

    def see(self, weights: np.ndarray, own: int, choices: np.ndarray) -> None:
        """Remember the latest queries."""
        window = self.policy.window
        for query in range(max(0, weights.shape[2] - window), weights.shape[2]):
            self._latest.append(pooled(weights[:, :, query, : own + query + 1], self.policy.pooling))
        del self._latest[:-window]

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """Sum of the votes, smoothed by the mean or maximum of `kernel` neighbours (edges count as 0 votes)."""
        votes = np.zeros(positions.shape, dtype=np.float32)
        for given in self._latest:
            votes[:, : given.shape[1]] += given
        beside = self.policy.kernel // 2
        padded = np.pad(votes, ((0, 0), (beside, beside)))
        spread = np.lib.stride_tricks.sliding_window_view(padded, self.policy.kernel, axis=1)
        return spread.max(axis=-1) if self.policy.smoothing == "max" else spread.mean(axis=-1)

    def keep(self, slots: np.ndarray) -> None:
        """The votes have been counted."""
        self._latest = []


@dataclass(frozen=True)
class SnapKV(Policy):
    """Votes of the last `window` prompt queries, smoothed over `kernel` neighbours; the window itself stays.

    Li et al. 2024, arXiv 2404.14469. The prompt is read with the full cache and cut once; what is decoded is kept, so
    the cache grows again by one token a step.
    """

    evicts: str = setting(
        "prefill",
        N_("When it evicts"),
        N_("SnapKV cuts the prompt once."),
        choices={"prefill": N_("once, at the end of the prompt; later tokens are all kept")},
    )
    window: int = setting(
        32, N_("Voting queries"), N_("Last tokens of the prompt that vote, and stay."), low=1, high=512
    )
    kernel: int = setting(
        5, N_("Neighbours"), N_("Tokens over which votes are smoothed, an odd number."), low=1, high=63
    )
    smoothing: str = setting("max", N_("Smoothing"), N_("What is taken of the neighbours."), choices=_SMOOTHING)
    pooling: str = setting("mean", N_("Pooling"), N_("How query heads that share a key are joined."), choices=POOLING)

    id: ClassVar[str] = "snapkv"
    title: ClassVar[str] = N_("SnapKV")
    rule: ClassVar[str] = N_(
        "At the end of the prompt its last tokens vote with their attention, neighbours share votes, and the tokens "
        "with the most votes stay beside the voters."
    )
    source: ClassVar[str] = "SnapKV, arXiv 2404.14469"
    watches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise Refused also for an even number of neighbours."""
        super().__post_init__()
        if self.kernel % 2 == 0:
            raise Refused("The number of neighbours must be odd, not {value}.", value=self.kernel)

    @property
    def recent(self) -> int:
        """The voters, as far as the budget has room for them."""
        return min(self.window, self.budget)

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger of votes."""
        return Votes(self, layer, heads)
