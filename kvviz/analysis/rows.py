"""Single rows and columns of attention, and what one token received, as weights over a text's tokens."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kvviz.analysis.attention import mean_received
from kvviz.records import LayerMeasures


def received_by_all(layers: Sequence[LayerMeasures]) -> np.ndarray:
    """Mean attention each token received, over all layers and heads, (T,); NaN where no query may look at it."""
    received = np.concatenate([mean_received(layer) for layer in layers])
    known = np.isfinite(received)
    with np.errstate(invalid="ignore"):
        return np.where(known, received, 0).sum(axis=0) / known.sum(axis=0)


def strongest(weights: np.ndarray, labels: Sequence[str], count: int = 5) -> pd.DataFrame:
    """The `count` largest of `weights` (T,), NaN left out. Columns: position, token, probability."""
    order = np.argsort(-weights, kind="stable")  # NaN comes last
    best = [int(index) for index in order[:count] if np.isfinite(weights[index])]
    return pd.DataFrame(
        {"position": best, "token": [labels[index] for index in best], "probability": [weights[i] for i in best]}
    )
