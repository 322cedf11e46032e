"""Key norm: tokens with short keys stay, because queries tend to look at them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.locale import N_
from kvviz.policies.base import Ledger, Policy


class Norms(Ledger):
    """Length of every key."""

    def __init__(self, policy: "KNorm", layer: int, heads: int) -> None:
        super().__init__(policy, layer, heads)
        self._norms = np.zeros((heads, 0), dtype=np.float32)

    def add(self, count: int, key_norms: np.ndarray) -> None:
        """Take them down."""
        self._norms = np.concatenate([self._norms, key_norms], axis=1)

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """The shorter, the more worth."""
        return -self._norms[:, : positions.shape[1]]

    def keep(self, slots: np.ndarray) -> None:
        """Those of the slots that are left."""
        self._norms = np.take_along_axis(self._norms, slots, axis=1)


@dataclass(frozen=True)
class KNorm(Policy):
    """The token with the longest key goes. It needs no attention weights.

    Devoto et al. 2024, arXiv 2406.11430.
    """

    id: ClassVar[str] = "knorm"
    title: ClassVar[str] = N_("key norm")
    rule: ClassVar[str] = N_("The token whose key vector is longest goes; attention is not looked at.")
    source: ClassVar[str] = "KNorm, arXiv 2406.11430"

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger of norms."""
        return Norms(self, layer, heads)
