"""Random: any token may go. What a policy with an idea must beat."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kvviz.locale import N_
from kvviz.policies.base import Ledger, Policy
from kvviz.policies.settings import setting


class Lots(Ledger):
    """Draws that depend on seed, layer, head, position and step alone: the same however the text is fed."""

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """A fresh uniform number for each slot and step."""
        salt = np.uint64((self.policy.seed * 1_000_003 + self.layer) % 2**32) << np.uint64(32)
        heads = np.arange(len(positions), dtype=np.uint64)[:, None] << np.uint64(56)
        drawn = _mixed(_mixed(positions.astype(np.uint64) ^ heads ^ _mixed(salt ^ np.uint64(now))))
        return (drawn >> np.uint64(40)).astype(np.float32)  # 24 bits, as many as a float32 tells apart


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): every bit of the result depends on every bit given."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return numbers ^ (numbers >> np.uint64(31))


@dataclass(frozen=True)
class Random(Policy):
    """Every step one token drawn uniformly, per layer and head, from those that are not protected.

    The control: the first `sinks` tokens stay (the whole prompt, if that is its length), the newest as well.
    """

    seed: int = setting(0, N_("Seed"), N_("Another seed, another draw."), low=0, high=1_000_000)
    sinks: int = setting(4, N_("Protected first tokens"), N_("First tokens that always stay."), low=0, high=1_000_000)

    id: ClassVar[str] = "random"
    title: ClassVar[str] = N_("random")
    rule: ClassVar[str] = N_("Of the tokens that are neither among the first nor the newest, one drawn by lot goes.")

    def ledger(self, layer: int, heads: int) -> Ledger:
        """A ledger that only draws."""
        return Lots(self, layer, heads)
