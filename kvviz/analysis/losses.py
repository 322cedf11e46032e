"""Losses of a text under several policies, as frames: per token, and in one row a policy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, eq=False, slots=True)
class Losses:
    """What one policy made of a text of T tokens: nll and kl float32 (T - 1,) in nats, of tokens 1 ... T - 1.

    stored int (T - 1,): tokens a layer held when each was predicted. first_eviction: position of the step after which
    the first token went, None if none did; evicted: how many went, over layers and heads.
    """

    policy: str
    nll: np.ndarray
    kl: np.ndarray
    stored: np.ndarray
    first_eviction: int | None
    evicted: int
    cache_bytes: int
    peak_bytes: int


def losses_frame(runs: Sequence[Losses], ids: Sequence[int], labels: Sequence[str]) -> pd.DataFrame:
    """policy, position, token_id, token, nll, kl, stored: one row a policy and scored token."""
    positions = np.arange(1, len(ids))
    frames = [
        pd.DataFrame(
            {
                "policy": run.policy,
                "position": positions,
                "token_id": list(ids[1:]),
                "token": list(labels[1:]),
                "nll": run.nll,
                "kl": run.kl,
                "stored": run.stored,
            }
        )
        for run in runs
    ]
    return pd.concat(frames, ignore_index=True)


def perplexities_frame(runs: Sequence[Losses]) -> pd.DataFrame:
    """One row a policy: perplexity of all scored tokens, and of those before and after its first eviction.

    The query at position p is the first to miss what went after the step at p - 1 and predicts token p + 1, so with a
    first eviction after step e tokens up to e + 1 count as before. NaN where no token is scored.
    full_after is the first run's perplexity of the same tokens as after, kl the mean over the tokens after the first
    eviction, kl_all over all; bytes are those of the whole cache.
    """
    rows = []
    for run in runs:
        cut = len(run.nll) if run.first_eviction is None else min(len(run.nll), run.first_eviction + 1)
        rows.append(
            {
                "policy": run.policy,
                "perplexity": perplexity(run.nll),
                "before": perplexity(run.nll[:cut]),
                "after": perplexity(run.nll[cut:]),
                "full_after": perplexity(runs[0].nll[cut:]),
                "kl": float(run.kl[cut:].mean()) if cut < len(run.kl) else np.nan,
                "kl_all": float(run.kl.mean()) if len(run.kl) else np.nan,
                "scored": len(run.nll),
                "scored_after": len(run.nll) - cut,
                "first_eviction": run.first_eviction,
                "evicted": run.evicted,
                "stored": int(run.stored[-1]) if len(run.stored) else 1,
                "cache_bytes": run.cache_bytes,
                "peak_bytes": run.peak_bytes,
            }
        )
    frame = pd.DataFrame(rows)
    return frame.astype({"first_eviction": "Int64"})


def perplexity(nll: np.ndarray) -> float:
    """exp of the mean loss; NaN of nothing."""
    return float(np.exp(nll.astype(np.float64).mean())) if len(nll) else float("nan")
