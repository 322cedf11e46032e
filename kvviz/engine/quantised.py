"""Caches that store K and V in fewer bits: transformers' fp8, and groups of whole numbers on the same base class."""

import math

import torch
from torch import Tensor
from transformers import QuantizedCache
from transformers.cache_utils import BaseQuantizedLayer

from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel
from kvviz.policies import Quantised

_LEAST = torch.finfo(torch.float16).tiny  # a group of equal numbers has no range, yet a scale


class GroupedLayer(BaseQuantizedLayer):
    """K and V as whole numbers of 4 or 8 bits; `group` neighbouring channels of a token share scale and zero point.

    A state is (packed uint8 (..., tokens, bytes), scale and zero float16 (..., tokens, groups)); a number is
    whole * scale + zero. Nothing is quantised twice.
    """

    def __init__(self, bits: int, group: int) -> None:
        super().__init__()
        self.bits, self.group = bits, group

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, ...]:
        """Store the new tokens and return all as they are stored."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.cumulative_length += key_states.shape[-2]
        self._quantized_keys = _joined(self._quantized_keys, self._quantize(key_states))
        self._quantized_values = _joined(self._quantized_values, self._quantize(value_states))
        return self._dequantize(self._quantized_keys), self._dequantize(self._quantized_values)

    def _quantize(self, tensor: Tensor) -> tuple[Tensor, ...]:
        top = 2**self.bits - 1
        groups = tensor.float().unflatten(-1, (-1, math.gcd(tensor.shape[-1], self.group)))
        zero = groups.amin(dim=-1).half()
        scale = ((groups.amax(dim=-1) - zero.float()) / top).clamp(min=_LEAST).half()
        whole = ((groups - zero.float()[..., None]) / scale.float()[..., None]).round().clamp(0, top)
        whole = whole.to(torch.uint8).flatten(-2)
        return whole if self.bits == 8 else whole[..., 0::2] | whole[..., 1::2] << 4, scale, zero

    def _dequantize(self, q_tensor: tuple[Tensor, ...]) -> Tensor:
        packed, scale, zero = q_tensor
        whole = packed if self.bits == 8 else torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
        groups = whole.unflatten(-1, (scale.shape[-1], -1)).float()
        return (groups * scale.float()[..., None] + zero.float()[..., None]).flatten(-2).to(self.keys.dtype)


def _joined(held: tuple[Tensor, ...] | None, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return new if held is None else tuple(torch.cat(pair, dim=-2) for pair in zip(held, new, strict=True))


def quantised_cache(lm: LanguageModel, policy: Quantised) -> QuantizedCache:
    """An empty cache of the policy's form. Raises Refused for a model with other layers than full attention."""
    try:
        cache = QuantizedCache("fp8", lm.config)
    except ValueError as error:
        raise Refused(
            "{name} has layers that slide, are shared or keep a state, and transformers quantises the cache of models "
            "with full attention alone. Choose another model.",
            name=lm.title,
        ) from error
    if policy.form != "fp8":
        cache.layers = [GroupedLayer(policy.bits, policy.group) for _ in cache.layers]
    return cache


def newest(layer: BaseQuantizedLayer, name: str, count: int) -> Tensor:
    """The last `count` tokens' "keys" or "values", (1, kv_heads, count, width), as they are stored."""
    state = layer._quantized_keys if name == "keys" else layer._quantized_values
    return layer._dequantize(tuple(each[..., -count:, :] if each.dim() else each for each in state))
