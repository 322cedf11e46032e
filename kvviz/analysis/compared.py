"""Several policies over one text, as frames for drawing; each is called by the name its caller gives it (`arm`)."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from kvviz.analysis.evictions import Evictions, agreement
from kvviz.analysis.losses import Losses


def loss_change_frame(full: Losses, runs: Mapping[str, Losses], window: int) -> pd.DataFrame:
    """arm, position, change_nats: each token's loss beyond the full cache's, as the mean over `window` tokens up to it.

    The first `window` - 1 tokens have no such mean and no row; a text with fewer scored tokens has one of all of them.
    """
    window = max(1, min(window, len(full.nll)))
    frames = []
    for arm, run in runs.items():
        sums = np.concatenate([[0.0], np.cumsum(run.nll.astype(np.float64) - full.nll)])
        means = (sums[window:] - sums[:-window]) / window
        frames.append(pd.DataFrame({"arm": arm, "position": np.arange(len(means)) + window, "change_nats": means}))
    return pd.concat(frames, ignore_index=True)


def lost_frame(lost: Mapping[str, np.ndarray], evictions: Mapping[str, Evictions]) -> pd.DataFrame:
    """arm, layer, lost_share, queries: attention lost per layer, mean over the queries after the first eviction.

    lost: float (layers, T) as from `kvviz.engine.lost.lost_attention`. A policy that dropped nothing any later query
    could miss has no row.
    """
    rows = []
    for arm, shares in lost.items():
        first = evictions[arm].first
        later = shares[:, shares.shape[1] if first is None else first + 1 :]
        if later.shape[1]:
            means = later.astype(np.float64).mean(axis=1)
            rows += [
                (arm, layer, mean, later.shape[1]) for layer, mean in zip(evictions[arm].layers, means, strict=True)
            ]
    return pd.DataFrame(rows, columns=["arm", "layer", "lost_share", "queries"])


def agreement_frame(evictions: Mapping[str, Evictions]) -> pd.DataFrame:
    """arm, other, jaccard: how alike the sets are that two policies keep at the end of the text, for every pair."""
    return pd.DataFrame(
        [
            (arm, other, agreement(one, another, one.tokens - 1))
            for arm, one in evictions.items()
            for other, another in evictions.items()
        ],
        columns=["arm", "other", "jaccard"],
    )


def first_difference(ids: Sequence[int], others: Sequence[int]) -> int | None:
    """Index of the first token in which two texts differ, one's end included; None where they are the same."""
    for index, (one, other) in enumerate(zip(ids, others, strict=False)):
        if one != other:
            return index
    return None if len(ids) == len(others) else min(len(ids), len(others))
