"""Where the attention of each query goes: sinks, the prompt, what was written, recent tokens, the query itself."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from kvviz.engine.scores import Block
from kvviz.records import BANDS


def band_sums(rows: Block, sinks: Tensor, recent: int, prompt_tokens: int) -> Tensor:
    """Mass of each band, (len(BANDS), rows), summed over heads: for one head the bands of a query sum to 1.

    `sinks` (heads, T) bool says which keys are sinks in which head. A key counts once: as the query's own token,
    else as a sink, else as one of the `recent` tokens before it, else as prompt (the first `prompt_tokens`) or as
    written. The last band is what a learned sink took.
    """
    weights = rows.probabilities
    heads, count, keys = weights.shape
    key = torch.arange(keys, device=weights.device)
    own = torch.arange(rows.start, rows.start + count, device=weights.device)[:, None]
    plain = weights.masked_fill(sinks[:, None, :keys], 0)
    itself = weights.gather(2, own.expand(heads, -1, 1))[..., 0].sum(0)
    at_rest = (plain * (key != own)).sum(0)  # neither the query itself nor a sink of the head
    new = (own - key) <= recent
    old = at_rest * ~new
    mass = {
        "sink": ((weights - plain) * (key != own)).sum((0, 2)),
        "prompt": old[:, :prompt_tokens].sum(1),
        "written": old[:, prompt_tokens:].sum(1),
        "recent": (at_rest * new).sum(1),
        "self": itself,
        "learned": torch.zeros_like(itself) if rows.sink is None else rows.sink.sum(0),
    }
    return torch.stack([mass[name] for name in BANDS])


class Reception:
    """Sums over the heads of one or more layers: what each key receives of each query, and the bands of each query."""

    def __init__(self, queries: range, sinks: Mapping[int, np.ndarray], recent: int, prompt_tokens: int) -> None:
        """`sinks` has for each layer that will be heard which keys are sinks in which head, (heads, T) bool."""
        self._queries, self._sinks, self._recent, self._prompt = queries, sinks, recent, prompt_tokens
        tokens = next(iter(sinks.values())).shape[1]
        self._received = np.zeros((len(queries), tokens), dtype=np.float32)
        self._seen = np.zeros((len(queries), tokens), dtype=bool)
        self._bands = np.zeros((len(BANDS), len(queries)), dtype=np.float32)
        self._heads = sum(len(found) for found in sinks.values())

    def add(self, layer: int, rows: Block) -> None:
        """Take in rows of one layer."""
        keys = rows.probabilities.shape[2]
        span = slice(rows.start - self._queries.start, rows.start - self._queries.start + len(rows.allowed))
        self._received[span, :keys] += rows.probabilities.sum(0).cpu().numpy()
        self._seen[span, :keys] |= rows.allowed.cpu().numpy()
        sinks = torch.from_numpy(self._sinks[layer]).to(rows.probabilities.device)
        self._bands[:, span] += band_sums(rows, sinks, self._recent, self._prompt).cpu().numpy()

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means over the heads: received (queries, keys), NaN where no layer lets the query look; bands."""
        received = np.where(self._seen, self._received / self._heads, np.nan).astype(np.float32)
        return received, self._bands / self._heads
