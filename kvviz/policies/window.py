"""Sliding window: the newest tokens stay, all others go, the first ones too."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.locale import N_
from kvviz.policies.base import Ledger, Policy


class ByAge(Ledger):
    """A token is worth more the later it came."""

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """The position itself."""
        return positions.astype(np.float32)


@dataclass(frozen=True)
class Window(Policy):
    """The last `budget` tokens. Renumbering changes nothing here: rotary attention sees distances, and they stay."""

    id: ClassVar[str] = "window"
    title: ClassVar[str] = N_("window")
    rule: ClassVar[str] = N_("The newest tokens stay, the oldest one goes.")

    def schedule(self, positions: np.ndarray) -> np.ndarray:
        """A token goes `budget` steps after its own."""
        return positions + self.budget

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger that knows ages."""
        return ByAge(self, layer, heads)
