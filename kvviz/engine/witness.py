"""Proof that K and V, once written, are never touched again: copy one token's, compare later, bit for bit."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from kvviz.engine.cache import stored_tokens


class LayerVerdict(NamedTuple):
    """Is the token still held in this layer, and are its K and V the same bits? None when it is not held."""

    layer: int
    held: bool
    key_equal: bool | None
    value_equal: bool | None


@dataclass(frozen=True, eq=False)
class Witness:
    """K and V of one token in every layer that held it, copied when `seen` tokens had been fed."""

    position: int
    seen: int
    copies: dict[int, tuple[Tensor, Tensor]]

    def compare(self, cache: DynamicCache, seen: int) -> list[LayerVerdict]:
        """One verdict a layer, for a cache that has been fed `seen` tokens by now."""
        verdicts = []
        for layer, copy in self.copies.items():
            now = _token(cache, layer, self.position, seen)
            equal = (None, None) if now is None else tuple(map(torch.equal, now, copy))
            verdicts.append(LayerVerdict(layer, now is not None, *equal))
        return verdicts


def witness(cache: DynamicCache, position: int, seen: int) -> Witness:
    """Copy the K and V of the token at `position` from every layer of a cache that has been fed `seen` tokens."""
    copies = {}
    for layer in range(len(cache.layers)):
        held = _token(cache, layer, position, seen)
        if held is not None:
            copies[layer] = tuple(tensor.clone() for tensor in held)
    return Witness(position, seen, copies)


def _token(cache: DynamicCache, layer: int, position: int, seen: int) -> tuple[Tensor, Tensor] | None:
    """K and V (batch, kv_heads, width) of one token, or None when the layer does not hold it."""
    offset = position - (seen - stored_tokens(cache.layers[layer]))
    if not 0 <= offset < stored_tokens(cache.layers[layer]):
        return None
    return cache.layers[layer].keys[:, :, offset], cache.layers[layer].values[:, :, offset]
