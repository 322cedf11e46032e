"""TOVA: what the latest query looks at least goes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.locale import N_
from kvviz.policies.base import Ledger, Policy


class LastQuery(Ledger):
    """The attention of the latest query, mean over all heads of the layer."""

    def __init__(self, policy: "TOVA", layer: int, heads: int) -> None:
        super().__init__(policy, layer, heads)
        self._given = np.zeros(0, dtype=np.float32)

    def see(self, weights: np.ndarray, own: int, choices: np.ndarray) -> None:
        """Only the last one counts."""
        self._given = weights[:, :, -1].mean(axis=(0, 1))

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """The same for every KV head, so that a layer keeps one set."""
        return np.broadcast_to(self._given[: positions.shape[1]], positions.shape).copy()


@dataclass(frozen=True)
class TOVA(Policy):
    """The token with the least attention of the latest query goes, one choice for all heads of a layer.

    Oren et al. 2024, arXiv 2401.06104. The newest token itself stays.
    """

    id: ClassVar[str] = "tova"
    title: ClassVar[str] = N_("TOVA")
    rule: ClassVar[str] = N_(
        "The token that the latest query gave least attention goes, the same one in all heads of a layer."
    )
    source: ClassVar[str] = "TOVA, arXiv 2401.06104"
    watches: ClassVar[bool] = True

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger of one row."""
        return LastQuery(self, layer, heads)
