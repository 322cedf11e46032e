"""A long text read with less and less of its past: running loss, and what happens past the trained length."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from kvviz.analysis.losses import perplexity

# Xiao et al. 2023 (arXiv 2309.17453), Table 2: perplexity over 400,000 tokens of PG19, caches of equal size
PAPER_SINKS = (0, 1, 2, 4, 8)
PAPER = {
    "Falcon-7B": (17.90, 12.12, 12.12, 12.12, 12.12),
    "MPT-7B": (460.29, 14.99, 15.00, 14.99, 14.98),
    "Pythia-12B": (21.62, 11.95, 12.09, 12.09, 12.02),
    "Llama-2-7B": (3359.95, 11.88, 10.51, 9.59, 9.54),
}
_POINTS = 1500  # a line needs no more


def running_frame(losses: Mapping[str, np.ndarray], window: int) -> pd.DataFrame:
    """arm, position, loss_nats: mean loss of the `window` tokens up to each position.

    losses: nll of tokens 1 ... T - 1 by arm. The first `window` - 1 tokens have no such mean and no row; with fewer
    tokens there is one of all of them. Long texts are thinned, each line's last point stays.
    """
    frames = []
    for arm, nll in losses.items():
        width = max(1, min(window, len(nll)))
        sums = np.concatenate([[0.0], np.cumsum(nll, dtype=np.float64)])
        means = (sums[width:] - sums[:-width]) / width
        shown = np.arange(len(means) - 1, -1, -max(1, -(-len(means) // _POINTS)))[::-1]
        frames.append(pd.DataFrame({"arm": arm, "position": shown + width, "loss_nats": means[shown]}))
    return pd.concat(frames, ignore_index=True)


def after_first(budget: int) -> int:
    """How many of the first scored tokens are predicted before anything of them can be missing."""
    return budget + 1  # the step at position `budget` is the first to evict; the query after it the first to miss


def sinks_frame(by_sinks: Mapping[int, np.ndarray], budget: int) -> pd.DataFrame:
    """sinks, perplexity, scored_tokens: of the tokens after the first eviction; no row where there is none."""
    skip = after_first(budget)
    rows = [
        (sinks, perplexity(nll[skip:]), len(nll) - skip) for sinks, nll in sorted(by_sinks.items()) if len(nll) > skip
    ]
    return pd.DataFrame(rows, columns=["sinks", "perplexity", "scored_tokens"])


def paper_frame() -> pd.DataFrame:
    """model, sinks, perplexity: the published table."""
    rows = [
        (model, sinks, value) for model, row in PAPER.items() for sinks, value in zip(PAPER_SINKS, row, strict=True)
    ]
    return pd.DataFrame(rows, columns=["model", "sinks", "perplexity"])


class Crossing(NamedTuple):
    """Perplexity of the tokens behind the trained length, of as many (at most) before it, and of the last ones read."""

    before: float
    after: float
    end: float
    tokens_before: int
    tokens_after: int
    tokens_end: int

    @property
    def growth(self) -> float:
        """At the end, as a multiple of before."""
        return self.end / self.before


def crossing(nll: np.ndarray, context: int | None, last: int = 1024) -> Crossing | None:
    """What the loss does where the text passes the trained length; None where it does not.

    nll of tokens 1 ... T - 1. Behind it are the tokens predicted at positions that the model was never trained on, the
    first by the query at position `context`; the end is the last `last` of them.
    """
    if context is None or len(nll) <= context:
        return None
    behind = nll[context:]
    parts = (nll[max(0, context - len(behind)) : context], behind, behind[-last:])
    return Crossing(*(perplexity(part) for part in parts), *(len(part) for part in parts))
