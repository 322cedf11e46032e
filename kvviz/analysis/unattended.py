"""How many heads never looked at a token: by layer and position, by token, and counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvviz.analysis.attention import ATTENDED, NEVER, OUT_OF_WINDOW, TOO_NEW, attendance
from kvviz.records import LayerMeasures

RULES = {"relative": 1.0, "absolute": 0.01}  # rule -> its default threshold


class Rule(NamedTuple):
    """When a key counts as never attended, as `kvviz.analysis.attention.attendance` takes it."""

    rule: str = "relative"
    threshold: float = RULES["relative"]
    too_new: int = 8


@dataclass(frozen=True, eq=False, slots=True)
class Unattended:
    """Over L layers and T keys: `share` float32 (L, T) of each layer's heads that never attended to a key so far,
    NaN where that cannot be told; `state` uint8 (L, T): ATTENDED where it can, else TOO_NEW or OUT_OF_WINDOW;
    `heads` (L,) int: query heads of each layer."""

    share: np.ndarray
    state: np.ndarray
    heads: np.ndarray

    @property
    def by_token(self) -> np.ndarray:
        """Share of all (layer, head) pairs that can tell and never attended to a token, (T,); NaN where none can."""
        judged = (self.state == ATTENDED) * self.heads[:, None]
        with np.errstate(invalid="ignore"):
            return np.nansum(self.share * self.heads[:, None], axis=0) / judged.sum(axis=0)

    @property
    def counts(self) -> dict[str, int]:
        """Entries (layer, head, key) by what became of them: never, attended, too_new, out_of_window."""
        per_state = {
            name: int(((self.state == state) * self.heads[:, None]).sum())
            for name, state in (("judged", ATTENDED), ("too_new", TOO_NEW), ("out_of_window", OUT_OF_WINDOW))
        }
        never = round(float(np.nansum(self.share * self.heads[:, None])))
        return {"never": never, "attended": per_state.pop("judged") - never, **per_state}


def unattended(layers: Sequence[LayerMeasures], rule: Rule) -> Unattended:
    """Apply `rule` to every layer, by the queries seen so far."""
    shares, states = [], []
    for layer in layers:
        status = attendance(layer, *rule)
        # new or out of the window is a key for all heads of a layer alike
        state = np.where(np.isin(status[0], (TOO_NEW, OUT_OF_WINDOW)), status[0], ATTENDED)
        shares.append(np.where(state == ATTENDED, (status == NEVER).mean(axis=0), np.nan).astype(np.float32))
        states.append(state.astype(np.uint8))
    return Unattended(np.stack(shares), np.stack(states), np.array([len(layer.received) for layer in layers]))


def pooled(found: Unattended, most: int = 512) -> tuple[Unattended, int]:
    """Neighbouring keys together, so that at most `most` columns remain, and how many share one.

    A column's share is the mean of those keys of it that can be told; its state is theirs where there is any.
    """
    layers, keys = found.share.shape
    cell = max(1, -(-keys // most))
    if cell == 1:
        return found, 1
    ends = ((0, 0), (0, -keys % cell))
    share = np.pad(found.share, ends, constant_values=np.nan).reshape(layers, -1, cell)
    state = np.pad(found.state, ends, mode="edge").reshape(layers, -1, cell)
    known = np.isfinite(share)
    with np.errstate(invalid="ignore"):
        mean = np.where(known, share, 0).sum(axis=2) / known.sum(axis=2)
    state = np.where(known.any(axis=2), ATTENDED, state[:, :, 0]).astype(np.uint8)
    return Unattended(mean.astype(np.float32), state, found.heads), cell
