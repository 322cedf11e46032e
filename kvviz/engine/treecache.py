"""K and V of runs of tokens in a radix tree, and real prefills that start from them."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor
from transformers import DynamicCache

from kvviz.analysis.prefixes import reusable
from kvviz.analysis.radix import Node, RadixTree
from kvviz.engine.attention import Turn
from kvviz.engine.copying import Recorder, TappedCache
from kvviz.engine.prefill import Prefill, prefill
from kvviz.models.loading import LanguageModel

_KV = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """K and V (kv_heads, tokens, width) of consecutive tokens, for every layer that has them, in storage of their own.

    Sliding layers too hold all tokens of the run: a later prompt may leave it anywhere, and what its window shows
    there has to be at hand.
    """

    layers: dict[int, _KV]

    @property
    def nbytes(self) -> int:
        """Sum of numel x itemsize."""
        return sum(part.numel() * part.element_size() for both in self.layers.values() for part in both)

    def split(self, at: int) -> "tuple[Run, Run]":
        """The first `at` tokens and the rest, as copies: a view would keep the bytes of an evicted part alive."""
        return self.cut(0, at), self.cut(at, None)

    def cut(self, start: int, stop: int | None) -> "Run":
        """A copy of a part."""
        with torch.inference_mode():
            return Run(
                {layer: tuple(part[:, start:stop].clone() for part in both) for layer, both in self.layers.items()}
            )


def start_from(lm: LanguageModel, path: Sequence[Node], reused: int) -> tuple[TappedCache, Recorder]:
    """A new cache that holds the first `reused` tokens of the path's runs, and the recorder of what is added to it."""
    recorder = Recorder()
    cache = TappedCache(lm.config, recorder)
    runs = [node.payload.layers for node in path if node.start < reused]
    for layer in runs[0] if runs else ():
        parts = (torch.cat([run[layer][part] for run in runs], dim=1)[None, :, :reused] for part in (0, 1))
        DynamicCache.update(cache, *parts, layer)  # past the tap: these are known already
    return cache, recorder


def serve(
    lm: LanguageModel, tree: RadixTree, ids: Sequence[int], *, chunk: int | None = None, turn: Turn = nullcontext
) -> tuple[Prefill, TappedCache, int, "_Rest"]:
    """Prefill `ids` from what `tree` holds: the prefill, its cache, tokens reused, and what may be stored.

    The tree is only read. Seconds include putting the cache together.
    """
    shared, path = tree.match(ids)
    reused = reusable(shared, len(ids))
    with turn(), torch.inference_mode():
        begin = perf_counter()
        cache, recorder = start_from(lm, path, reused)
        copied = perf_counter() - begin
    done = prefill(lm, cache, ids, reused, chunk=chunk, turn=turn)
    return Prefill(copied + done.seconds, done.logits), cache, reused, _Rest(recorder, reused)


@dataclass(frozen=True, eq=False, slots=True)
class _Rest:
    """K and V of the tokens from `start` on that a prefill computed."""

    recorder: Recorder
    start: int

    def from_position(self, position: int) -> Run:
        """Those from `position` on."""
        return Run(self.recorder.layers()).cut(position - self.start, None)
