"""Llama and GPT-NeoX with their attention written out: keys are stored as they come and turned when they are used."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from kvviz.models.loading import LanguageModel

Attend = Callable[
    [Tensor, Tensor, Tensor], Tensor
]  # of one token: query, key and value (heads, width) -> (heads, width)


class LateLayer:
    """Keys without positions; at every step what is left is numbered 0, 1, ... and turned, the query with it."""

    def __init__(self, gone: np.ndarray, rotary: int, base: float) -> None:
        self._gone, self._rotary, self._base = gone, rotary, base
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self._keys.append(key.double())
        self._values.append(value.double())
        now, group = len(self._keys) - 1, query.shape[0] // key.shape[0]
        mixed = []
        for head in range(key.shape[0]):
            left = [position for position in range(now + 1) if self._gone[head, position] >= now]
            keys = self._turned(torch.stack([self._keys[each][head] for each in left]), torch.arange(len(left)))
            values = torch.stack([self._values[each][head] for each in left])
            mine = query[head * group : (head + 1) * group].double()
            turned = self._turned(mine, torch.full((group,), len(left) - 1))
            mixed.append((turned @ keys.T / query.shape[1] ** 0.5).softmax(-1) @ values)
        return torch.cat(mixed).to(query.dtype)

    def _turned(self, vectors: Tensor, places: Tensor) -> Tensor:
        """Pairs (i, i + rotary / 2) as complex numbers, turned by place x base ^ (-2i / rotary)."""
        half = self._rotary // 2
        angles = places[:, None] * self._base ** (-torch.arange(half, dtype=torch.float64) / half)
        pairs = torch.complex(vectors[:, :half], vectors[:, half : self._rotary])
        pairs = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pairs.real, pairs.imag, vectors[:, self._rotary :]], dim=1)


def _llama(layer: nn.Module, hidden: Tensor, width: int, attend: Attend) -> Tensor:
    normed, block = layer.input_layernorm(hidden), layer.self_attn
    parts = (part(normed).view(-1, width) for part in (block.q_proj, block.k_proj, block.v_proj))
    hidden = hidden + block.o_proj(attend(*parts).flatten())
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))


def _neox(layer: nn.Module, hidden: Tensor, width: int, attend: Attend) -> Tensor:
    parts = layer.attention.query_key_value(layer.input_layernorm(hidden)).view(-1, 3 * width).split(width, dim=1)
    mixed = layer.attention.dense(attend(*parts).flatten())
    return hidden + mixed + layer.mlp(layer.post_attention_layernorm(hidden))


def rotated_late(lm: LanguageModel, ids: list[int], gone: dict[int, np.ndarray]) -> Tensor:
    """Logits (tokens, vocabulary) of `ids` fed one by one, with the kept sets that `gone` says."""
    body, rope = lm.model.base_model, lm.config.rope_parameters
    neox = lm.config.model_type == "gpt_neox"
    width = lm.config.hidden_size // lm.config.num_attention_heads
    rotary = int(width * rope.get("partial_rotary_factor", 1))
    step, embed, last = (
        (_neox, body.embed_in, body.final_layer_norm) if neox else (_llama, body.embed_tokens, body.norm)
    )
    caches = [LateLayer(gone[layer], rotary, rope["rope_theta"]) for layer in range(len(body.layers))]
    logits = []
    with torch.inference_mode():
        for token in ids:
            hidden = embed(torch.tensor(token))
            for layer, cache in zip(body.layers, caches, strict=True):
                hidden = step(layer, hidden, width, cache.attend)
            logits.append(lm.model.lm_head(last(hidden)))
    return torch.stack(logits)
