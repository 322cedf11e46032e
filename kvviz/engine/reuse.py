"""The second prompt from the first one's cache, against the same prompt from nothing."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from kvviz.engine.attention import Turn
from kvviz.engine.cache import new_cache
from kvviz.engine.copying import Recorder, TappedCache, copy_cache, held_bytes
from kvviz.engine.prefill import Prefill, prefill, require_reuse
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel

COMPARED = 16  # last tokens whose logits are compared

# The largest difference between two logits that is rounding and nothing else (the same sums in another order): at
# least the first number, and the second as a share of the largest logit. Measured in docs/design.md.
TOLERANCE = {torch.float32: (1e-4, 5e-6), torch.float16: (2e-2, 5e-3), torch.bfloat16: (0.125, 4e-2)}


@dataclass(frozen=True, eq=False)
class StoredPrefix:
    """The cache as it is after `ids`: never continued itself, only its copies are."""

    ids: tuple[int, ...]
    cache: DynamicCache

    def serve(
        self,
        lm: LanguageModel,
        ids: Sequence[int],
        *,
        keep: int = 1,
        chunk: int | None = None,
        turn: Turn = nullcontext,
    ) -> tuple[Prefill, DynamicCache, float]:
        """Prefill `ids`, which begin with the stored ones, on a copy; its cache, and the seconds the copy took."""
        with turn(), torch.inference_mode():
            begin = perf_counter()
            cache = copy_cache(self.cache)
            copied = perf_counter() - begin
        return prefill(lm, cache, ids, len(self.ids), keep=keep, chunk=chunk, turn=turn), cache, copied


@dataclass(frozen=True, eq=False, slots=True)
class Reuse:
    """Numbers of one comparison; distances are float32 (layers, aligned positions) and (layers, pairs).

    Layers without K and V of single tokens are left out; `layers` has the numbers of those that are there.
    """

    reused_bytes: int
    compared: int
    logit_gap: float
    largest_logit: float
    tolerance: float
    top: int
    top_cold: int
    copy_seconds: float
    warm_seconds: float
    cold_seconds: float
    layers: tuple[int, ...]
    keys: np.ndarray
    values: np.ndarray
    pair_keys: np.ndarray
    pair_values: np.ndarray


def store_prefix(
    lm: LanguageModel, ids: Sequence[int], *, chunk: int | None = None, turn: Turn = nullcontext
) -> StoredPrefix:
    """The cache of `ids`, built exactly so far: a sliding layer holds the window before the next token."""
    cache = new_cache(lm.config)
    if ids:
        prefill(lm, cache, ids, chunk=chunk, turn=turn)
    return StoredPrefix(tuple(ids), cache)


def reuse(
    lm: LanguageModel,
    first: Sequence[int],
    second: Sequence[int],
    reused: int,
    pairs: Sequence[tuple[int, int]],
    *,
    chunk: int | None = None,
    turn: Turn = nullcontext,
) -> Reuse:
    """Prefill `first`, then `second` from its first `reused` tokens, then `second` from nothing.

    `pairs` are (position in first, position in second) of tokens whose K and V are compared. Raises Refused where
    the model gives no cache away.
    """
    require_reuse(lm)
    recorder, again = Recorder(), Recorder()
    stored = store_prefix(lm, first[:reused], chunk=chunk, turn=turn)
    record(lm, first, recorder, chunk=chunk, turn=turn)
    keep = min(COMPARED, len(second) - reused)
    warm, _, copied = stored.serve(lm, second, keep=keep, chunk=chunk, turn=turn)
    cold = record(lm, second, again, keep=keep, chunk=chunk, turn=turn)
    largest = float(cold.logits.abs().max())
    one, two = recorder.layers(), again.layers()
    aligned = [(at, at) for at in range(min(len(first), len(second)))]
    with turn(), torch.inference_mode():
        keys, values = _distances(one, two, aligned)
        pair_keys, pair_values = _distances(one, two, pairs)
    return Reuse(
        reused_bytes=held_bytes(stored.cache),
        compared=keep,
        logit_gap=float((warm.logits - cold.logits).abs().max()),
        largest_logit=largest,
        tolerance=tolerance(lm.dtype, largest),
        top=int(warm.logits[-1].argmax()),
        top_cold=int(cold.logits[-1].argmax()),
        copy_seconds=copied,
        warm_seconds=copied + warm.seconds,
        cold_seconds=cold.seconds,
        layers=tuple(one),
        keys=keys,
        values=values,
        pair_keys=pair_keys,
        pair_values=pair_values,
    )


def tolerance(dtype: torch.dtype, largest_logit: float) -> float:
    """The largest difference between two logits that rounding explains in this dtype."""
    least, share = TOLERANCE.get(dtype, TOLERANCE[torch.bfloat16])
    return max(least, share * largest_logit)


def record(
    lm: LanguageModel,
    ids: Sequence[int],
    recorder: Recorder,
    *,
    keep: int = 1,
    chunk: int | None = None,
    turn: Turn = nullcontext,
) -> Prefill:
    """Prefill `ids` from nothing while `recorder` keeps every layer's K and V of all tokens."""
    return prefill(lm, TappedCache(lm.config, recorder), ids, keep=keep, chunk=chunk, turn=turn)


def check_pairs(pairs: Sequence[tuple[int, int]], first: int, second: int) -> None:
    """Raise Refused for positions outside texts of `first` and `second` tokens."""
    for one, two in pairs:
        if not (0 <= one < first and 0 <= two < second):
            raise Refused(
                "There is no pair of tokens at {first} and {second}: the prompts have {one} and {two} tokens.",
                first=one,
                second=two,
                one=first,
                two=second,
            )


_Layers = dict[int, tuple[Tensor, Tensor]]


def _distances(one: _Layers, two: _Layers, pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Relative distances of K and of V, each float32 (layers, pairs), over all KV heads of a layer together."""
    found = np.zeros((2, len(one), len(pairs)), dtype=np.float32)
    if pairs:
        left, right = (list(places) for places in zip(*pairs, strict=True))
        for row, layer in enumerate(one):
            for part in (0, 1):
                found[part, row] = _relative(one[layer][part][:, left], two[layer][part][:, right])
    return found[0], found[1]


def _relative(one: Tensor, two: Tensor) -> np.ndarray:
    """|a - b| over the mean of |a| and |b|, of (kv_heads, n, width): 0 the same, 2 opposite, NaN where both are 0."""
    one, two = (x.float().transpose(0, 1).flatten(1) for x in (one, two))
    scale = (one.norm(dim=1) + two.norm(dim=1)) / 2
    return ((one - two).norm(dim=1) / scale).cpu().numpy()
