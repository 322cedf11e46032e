"""What a text loses when some of its keys are hidden: per token and on average."""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def losses_frame(nll: np.ndarray, nll_without: np.ndarray, labels: Sequence[str]) -> pd.DataFrame:
    """One row a scored token, the text's first left out. nll and nll_without float (T - 1,), labels of all T.

    Columns: position, token, nll_nats, nll_without_nats, change_nats.
    """
    return pd.DataFrame(
        {
            "position": np.arange(1, len(labels)),
            "token": list(labels[1:]),
            "nll_nats": nll,
            "nll_without_nats": nll_without,
            "change_nats": nll_without - nll,
        }
    )


def perplexity(nll: np.ndarray) -> float | None:
    """exp of the mean over scored tokens; None where there is none."""
    return float(np.exp(np.mean(nll, dtype=np.float64))) if len(nll) else None
