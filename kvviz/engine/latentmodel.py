"""Latents and queries of one layer of a loaded model while it reads a text: in the prefill and in a decode step."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from kvviz.engine.cache import new_cache
from kvviz.engine.forward import Feeder
from kvviz.engine.latent import LatentCall
from kvviz.engine.latentmodule import latent_call
from kvviz.engine.probe import observe
from kvviz.engine.scores import AttentionCall
from kvviz.errors import Refused
from kvviz.geometry.latent import LatentSizes
from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.models.loading import LanguageModel

MOST_TOKENS = 1024  # every head's T x T scores are held, in float64

Turn = Callable[[], AbstractContextManager]


def latent_layers(lm: LanguageModel) -> list[int]:
    """Layers that cache latents and look at all of them; empty for other models."""
    return [shape.layer for shape in layer_shapes(lm.config) if _plain(shape)]


def layer_sizes(lm: LanguageModel, layer: int) -> LatentSizes:
    """H, r, d_R, d_N and d_V of a layer. Raises Refused where it caches no latents."""
    shape = next((one for one in layer_shapes(lm.config) if one.layer == layer and _plain(one)), None)
    if shape is None:
        layers = latent_layers(lm)
        if not layers:
            raise Refused(
                "{name} caches keys and values, not latents. Load a model with latent attention, such as "
                "DeepSeek-V2-Lite.",
                name=lm.title,
            )
        raise Refused(
            "Layer {layer} of {name} caches no latents. Choose one from {first} to {last}.",
            layer=layer, name=lm.title, first=layers[0], last=layers[-1],
        )  # fmt: skip
    key, value = shape.head_widths
    return LatentSizes(shape.query_heads, shape.key_width, shape.value_width, key - shape.value_width, value)


def _plain(shape: LayerShape) -> bool:
    return shape.latent and shape.kind == "full" and not shape.index_width


def model_calls(
    lm: LanguageModel, ids: Sequence[int], layer: int, turn: Turn = nullcontext
) -> list[tuple[LatentCall, Tensor, nn.Module]]:
    """The decode step of the last of `ids`, then the prefill of those before it (absent for one token).

    With each the output (n, hidden) that the model's own attention gives, and the projection that made it. The
    forwards end at `layer`. Raises Refused for a layer without latents and for more than `MOST_TOKENS` tokens.
    """
    layer_sizes(lm, layer)
    if len(ids) > MOST_TOKENS:
        raise Refused(
            "Here every token is compared with every other one at once: at most {limit} tokens, not {count}. "
            "Shorten the text.",
            limit=MOST_TOKENS,
            count=len(ids),
        )
    cache, feeder = new_cache(lm.config), Feeder(lm)
    pieces = [(0, len(ids) - 1), (len(ids) - 1, len(ids))] if len(ids) > 1 else [(0, 1)]
    found = []
    for start, stop in pieces:
        with turn():
            found.append(_heard(feeder, ids[start:stop], start, cache, layer))
    return found[::-1]


class _Enough(Exception):
    """The layer that was asked for has been heard; what comes above it is not needed."""


def _heard(
    feeder: Feeder, ids: Sequence[int], start: int, cache: DynamicCache, layer: int
) -> tuple[LatentCall, Tensor, nn.Module]:
    found = []

    def hear(call: AttentionCall) -> None:
        if call.layer == layer:
            held = cache.layers[layer]
            found.append((latent_call(call, held.keys, held.values), _own(call), call.module.o_proj))
            raise _Enough

    try:
        with torch.inference_mode(), observe(hear):
            feeder.hidden(ids, start, cache)
    except _Enough:
        return found[0]
    raise ValueError(f"layer {layer} has no attention")


def _own(call: AttentionCall) -> Tensor:
    mixed, _ = sdpa_attention_forward(call.module, call.query, call.key, call.value, call.mask, **call.options)
    return call.module.o_proj(mixed[0].flatten(1))
