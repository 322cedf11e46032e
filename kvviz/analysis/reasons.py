"""Why tokens left a head's cache: what each one's score was among those that could go."""

import numpy as np
import pandas as pd

from kvviz.analysis.evictions import Evictions
from kvviz.policies import NEVER


def reasons(evictions: Evictions, layer: int, kv_head: int) -> pd.DataFrame:
    """One row a token that one head of a layer lost, in the order in which they went.

    Columns: position, evicted_after (position of the step), score and cut (NaN for a rule that has none), rank (1: the
    first to go) of candidates (how many could have gone then). Of equal scores the older token goes first.
    """
    gone = evictions.gone[evictions.layers.index(layer), kv_head]
    frame = evictions.frame()
    frame = frame[(frame["layer"] == layer) & (frame["kv_head"] == kv_head)].drop(columns=["layer", "kv_head"])
    frame = frame.sort_values(["evicted_after", "score", "position"], kind="stable", ignore_index=True)
    frame["rank"] = frame.groupby("evicted_after").cumcount() + 1
    could = {int(now): _candidates(evictions, gone, int(now)) for now in frame["evicted_after"].unique()}
    frame["candidates"] = frame["evicted_after"].map(could).astype(np.int64)
    return frame


def _candidates(evictions: Evictions, gone: np.ndarray, now: int) -> int:
    """How many tokens could have gone after the step at `now`: those that were there and not protected."""
    positions = np.nonzero(gone[: now + 1] >= now)[0]
    return int((~evictions.policy.protected(positions, now)).sum())


def leaving(evictions: Evictions, position: int) -> pd.DataFrame:
    """When each head lost one token: layer, kv_head, evicted_after (missing where it is still there)."""
    gone = evictions.gone[:, :, position]
    layer, kv_head = np.indices(gone.shape)
    after = pd.array(gone.ravel(), dtype="Int64")
    after[gone.ravel() == NEVER] = pd.NA
    return pd.DataFrame(
        {"layer": np.array(evictions.layers)[layer.ravel()], "kv_head": kv_head.ravel(), "evicted_after": after}
    )
