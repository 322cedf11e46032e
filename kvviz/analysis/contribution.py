"""How much a key is looked at against how much of what the head adds comes from it."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from kvviz.analysis.attention import mean_received
from kvviz.records import LayerMeasures


class Shares(NamedTuple):
    """One key of one head: its shares (0 to 1) of all weight, and of all weight x norm."""

    position: int
    weight: float
    contribution: float


def contribution_frame(layer: LayerMeasures, head: int) -> pd.DataFrame:
    """One row a key: position, received (mean), contributed (mean received x norm of what the value adds), norm.

    Received and contributed are also there as parts of their largest: received_part, contributed_part. Raises
    ValueError where the norms are not known.
    """
    norm = _norms(layer)[head]
    received = mean_received(layer)[head]
    contributed = received * norm
    return pd.DataFrame(
        {
            "position": np.arange(len(norm)),
            "norm": norm,
            "received": received,
            "contributed": contributed,
            "received_part": received / np.nanmax(received),
            "contributed_part": contributed / np.nanmax(contributed),
        }
    )


def shares_of(layer: LayerMeasures, head: int, position: int) -> Shares:
    """What one key has of a head's attention, over all queries, and of the attention times norms."""
    received = layer.received[head]
    contributed = received * _norms(layer)[head]
    return Shares(
        position,
        float(received[position] / received.sum()),
        float(contributed[position] / contributed.sum()),
    )


def _norms(layer: LayerMeasures) -> np.ndarray:
    if layer.contribution is None:
        raise ValueError(f"layer {layer.layer} has no output projection that is known")
    return layer.contribution
