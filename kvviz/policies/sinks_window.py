"""Sinks and window (StreamingLLM): the first tokens and the newest ones stay."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.locale import N_
from kvviz.policies.base import NEVER, POSITIONS, Ledger, Policy
from kvviz.policies.settings import setting
from kvviz.policies.window import ByAge


@dataclass(frozen=True)
class SinksWindow(Policy):
    """The first `sinks` tokens and the last `budget - sinks`.

    Xiao et al. 2023, arXiv 2309.17453. The paper renumbers what is kept (positions="relative"); with original
    positions the distance between sinks and window grows with the text. As in the reference code a token is dropped
    after the step, so a query sees `budget` tokens and itself.
    """

    positions: str = setting(
        "relative",
        N_("Positions"),
        N_("Which position a rotary model gives to what is kept; the paper renumbers."),
        choices=POSITIONS,
    )
    sinks: int = setting(4, N_("Sinks"), N_("First tokens that always stay."), low=0, high=64)

    id: ClassVar[str] = "sinks_window"
    title: ClassVar[str] = N_("sinks + window")
    rule: ClassVar[str] = N_("The first tokens and the newest ones stay, the oldest of the others goes.")
    source: ClassVar[str] = "StreamingLLM, arXiv 2309.17453"

    def schedule(self, positions: np.ndarray) -> np.ndarray:
        """A token behind the sinks goes `budget - sinks` steps after its own."""
        return np.where(positions < self.sinks, NEVER, positions + self.budget - self.sinks)

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger that knows ages; sinks are protected by the policy."""
        return ByAge(self, layer, heads)
