"""`kvviz.attention`: what a model's attention does with a text, at any length, as frames and as maps on request."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from kvviz.analysis import attention as frames
from kvviz.analysis.maps import MapBuilder, cell_of, pool
from kvviz.engine.attention import Progress, Turn, eager_weights, layer_measures, one_layer
from kvviz.engine.bands import Reception
from kvviz.engine.probe import ATTENTION
from kvviz.engine.rows import mixed, read_rows
from kvviz.engine.scores import AttentionCall, block
from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, ids_of
from kvviz.models.tokens import Token, tokens
from kvviz.records import LayerMeasures, MapView, OverTime

_ROWS = 256  # query rows computed at a time for a map


def attention(
    lm: LanguageModel,
    text: str | Prompt | Sequence[int],
    *,
    chat: bool = False,
    progress: Progress | None = None,
    turn: Turn = nullcontext,
) -> "AttentionSummary":
    """Run the model over `text` (text, an encoded prompt, or ids: a finished run's prompt and tokens together).

    One forward; layer by layer the attention is reduced to measures, and no layers x heads x T x T array is held.
    `progress` and `turn` as in `kvviz.engine.attention.layer_measures`, which also says what is refused.
    """
    ids = ids_of(lm, text, chat=chat)
    return AttentionSummary(lm, ids, layer_measures(lm, ids, progress=progress, turn=turn))


@dataclass(frozen=True, eq=False)
class AttentionSummary:
    """The attention of one text: `layers` has the measures, the methods make frames and maps of them."""

    lm: LanguageModel
    ids: tuple[int, ...]
    layers: list[LayerMeasures]

    @cached_property
    def tokens(self) -> list[Token]:
        """The text as tokens."""
        return tokens(self.lm.tokenizer, self.ids)

    @cached_property
    def labels(self) -> list[str]:
        """One label a token."""
        return [token.label for token in self.tokens]

    @cached_property
    def _kv_heads(self) -> list[int]:
        """K/V heads of each measured layer; a latent (MLA) is unfolded into one for each query head."""
        heads = [layer.received.shape[0] for layer in self.layers]
        return [
            shape.kv_heads if shape.kv_heads and count % shape.kv_heads == 0 and not _latent(self.lm) else count
            for shape, count in zip(self._shapes, heads, strict=True)
        ]

    @property
    def _shapes(self) -> list[LayerShape]:
        shapes = layer_shapes(self.lm.config)
        return [shapes[layer.layer] for layer in self.layers]

    @property
    def _eager(self) -> bool:
        return self.lm.model.config._attn_implementation != ATTENTION

    def sinks(self, epsilon: float = 0.3, *, diagonal: bool = True) -> pd.DataFrame:
        """Positions that are sinks, wherever they stand: position, token, rate, heads, score."""
        return frames.sinks_frame(self.layers, self.labels, epsilon, diagonal=diagonal)

    def heads(self) -> pd.DataFrame:
        """One row a layer and head: first_token_mass, effective_tokens, previous_token, induction, ..."""
        return frames.heads_frame(self.layers, self._kv_heads)

    def received(self) -> pd.DataFrame:
        """One row a layer, head and key: received, mean_received, peak, peak_probability, contribution."""
        return frames.received_frame(self.layers, self.labels)

    def never_attended(self, rule: str = "relative", threshold: float | None = None, too_new: int = 8) -> pd.DataFrame:
        """Entries no later query seen so far looked at: layer, head, position, token."""
        return frames.never_frame(self.layers, self.labels, rule, threshold, too_new)

    def unattended(self, rule: str = "relative", threshold: float | None = None, too_new: int = 8) -> pd.DataFrame:
        """Share of each layer's entries never attended, and the bytes of cache that nobody looked at."""
        itemsize = self.lm.dtype.itemsize
        sizes = [shape.bytes_per_token(itemsize) // max(1, shape.kv_heads) for shape in self._shapes]
        # all query heads read the one latent that is stored, so it counts once
        stored = [1] * len(self.layers) if _latent(self.lm) else self._kv_heads
        return frames.unattended_share_frame(self.layers, stored, sizes, rule, threshold, too_new)

    def map(self, layer: int, head: int) -> np.ndarray:
        """Attention of one head, float32 (query, key), NaN where a query may not look; computed anew."""
        return self.maps(layer, [head])[0]

    def maps(self, layer: int, heads: Sequence[int] | None = None) -> np.ndarray:
        """Attention of some heads of a layer (all when left out), float32 (heads, query, key), NaN as in `map`."""
        if self._eager:
            weights = list(eager_weights(self.lm, torch.tensor(self.ids, device=self.lm.device)))[layer]
            hidden = np.triu(np.ones(weights.shape[1:], dtype=bool), 1)
            picked = weights.cpu().numpy()[list(heads) if heads is not None else slice(None)].copy()
            picked[:, hidden] = np.nan
            return picked
        return one_layer(self.lm, self.ids, layer, lambda call: _maps(call, heads))

    def queries(self, layer: int, positions: Sequence[int]) -> np.ndarray:
        """Whom the tokens at `positions` look at, float32 (heads, len(positions), key), NaN where they may not."""
        self._check(positions)
        if self._eager:
            return self.maps(layer)[:, list(positions)]
        return one_layer(self.lm, self.ids, layer, lambda call: _queries(call, positions))

    def keys(self, layer: int, positions: Sequence[int]) -> np.ndarray:
        """Who looks at the tokens at `positions`, float32 (heads, query, len(positions)), NaN where it may not."""
        self._check(positions)
        if self._eager:
            return self.maps(layer)[:, :, list(positions)]
        return one_layer(self.lm, self.ids, layer, lambda call: _keys(call, positions))

    def _check(self, positions: Collection[int]) -> None:
        for position in positions:
            if not 0 <= position < len(self.ids):
                raise IndexError(f"position {position} is not in a text of {len(self.ids)} tokens")

    def of_layer(self, layer: int) -> LayerMeasures:
        """The measures of one layer, by the model's own number. Raises ValueError where it has no attention."""
        found = next((each for each in self.layers if each.layer == layer), None)
        if found is None:
            raise ValueError(f"layer {layer} has no attention")
        return found

    def view(
        self,
        layer: int,
        head: int | str,
        *,
        queries: range | None = None,
        keys: range | None = None,
        hidden: Collection[int] = (),
    ) -> MapView:
        """A rectangle of one head's map, or of the "mean" or "max" over the layer's heads, pooled to at most 256 cells.

        Computed anew, in blocks: the full map is never held. `hidden` keys are left out of `MapView.others`.
        """
        self._check([*(queries or ())[:1], *(queries or ())[-1:], *(keys or ())[:1], *(keys or ())[-1:]])
        measures, everything = self.of_layer(layer), range(len(self.ids))
        queries, keys = queries or everything, keys or everything
        known = measures.contribution is not None and not isinstance(head, str)
        builder = MapBuilder(queries, keys, measures.choices, measures.contribution[head] if known else None, hidden)
        read_rows(self.lm, self.ids, layer, lambda _, rows: builder.add(rows.start, mixed(rows, head)), queries)
        return builder.view()

    def over_time(
        self,
        layer: int | None = None,
        queries: range | None = None,
        *,
        recent: int = 16,
        prompt_tokens: int | None = None,
        epsilon: float = 0.3,
        diagonal: bool = True,
        turn: Turn = nullcontext,
    ) -> OverTime:
        """What each token receives of each of `queries`, mean over the heads of one layer or (None) of all layers.

        Bands as in `kvviz.engine.bands.band_sums`, with each head's own sinks. Computed anew.
        """
        self._check([*(queries or ())[:1], *(queries or ())[-1:]])
        everything = range(len(self.ids))
        queries = queries or everything
        layers = self.layers if layer is None else [self.of_layer(layer)]
        found = {each.layer: frames.is_sink(frames.mean_received(each, diagonal), epsilon) for each in layers}
        heard = Reception(queries, found, recent, len(self.ids) if prompt_tokens is None else prompt_tokens)
        read_rows(self.lm, self.ids, layer, heard.add, queries, turn=turn)
        received, bands = heard.means()
        cell = cell_of(queries, everything)
        return OverTime(queries, everything, cell[::-1], pool(received, cell).T, bands)


def _maps(call: AttentionCall, heads: Sequence[int] | None) -> np.ndarray:
    chosen = list(range(call.query.shape[1])) if heads is None else list(heads)
    tokens = call.query.shape[2]
    found = np.full((len(chosen), tokens, tokens), np.nan, dtype=np.float32)
    for start in range(0, tokens, _ROWS):
        rows = block(call, start, min(start + _ROWS, tokens))
        seen = rows.probabilities[chosen].masked_fill(~rows.allowed, float("nan"))
        found[:, start : start + seen.shape[1], : seen.shape[2]] = seen.cpu().numpy()
    return found


def _queries(call: AttentionCall, positions: Sequence[int]) -> np.ndarray:
    found = np.full((call.query.shape[1], len(positions), call.key.shape[2]), np.nan, dtype=np.float32)
    for index, position in enumerate(positions):
        row = block(call, position, position + 1)
        seen = row.probabilities[:, 0].masked_fill(~row.allowed[0], float("nan"))
        found[:, index, : seen.shape[1]] = seen.cpu().numpy()
    return found


def _keys(call: AttentionCall, positions: Sequence[int]) -> np.ndarray:
    tokens = call.query.shape[2]
    found = np.full((call.query.shape[1], tokens, len(positions)), np.nan, dtype=np.float32)
    for start in range(0, tokens, _ROWS):
        rows = block(call, start, min(start + _ROWS, tokens))
        seen = rows.probabilities.masked_fill(~rows.allowed, float("nan"))
        for index, position in enumerate(positions):
            if position < seen.shape[2]:
                found[:, start : start + seen.shape[1], index] = seen[:, :, position].cpu().numpy()
    return found


def _latent(lm: LanguageModel) -> bool:
    return bool(getattr(lm.config, "kv_lora_rank", None))
