"""The cache of one run: transformers' own, with room to grow, and what its tensors hold.

transformers' `DynamicLayer` joins old and new tensors at every token, which copies the whole cache each
step. `GrowingLayer` reserves room for `BLOCK` tokens at a time instead and hands out views of it, with the
same contents bit for bit. Sliding layers copy at most their window and stay transformers' own.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import BaseQuantizedLayer, CacheLayerMixin, DynamicLayer

from kvviz.records import LayerState

BLOCK = 256  # tokens of room reserved at a time


class GrowingLayer(DynamicLayer):
    """A full-attention layer whose K and V are views, (batch, kv_heads, stored, width), of larger storage."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, ...]:
        """Append the new tokens' K and V and return all that is stored."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = _append(self.keys, key_states)
        self.values = _append(self.values, value_states)
        return self.keys, self.values


def _append(held: Tensor, new: Tensor) -> Tensor:
    """`held` with `new` behind it, in the same storage when there is room for it."""
    stored = held.shape[-2] if held.numel() else 0
    total = stored + new.shape[-2]
    room = _room(held, new) if stored else None
    if room is None or room.shape[-2] < total:
        batch, heads, _, width = new.shape
        room = new.new_empty(batch, heads, -(-total // BLOCK) * BLOCK, width)
        if stored:
            room[:, :, :stored] = held
    room[:, :, stored:total] = new
    return room[:, :, :total]


def _room(held: Tensor, new: Tensor) -> Tensor | None:
    """The whole storage behind a view that `_append` made, or None when the tensor has another layout."""
    batch, heads, _, width = new.shape
    capacity = held.stride(1) // width if width else 0
    layout = (heads * capacity * width, capacity * width, width, 1)
    size = batch * heads * capacity * width
    held_all = held.untyped_storage().nbytes() == size * held.element_size()
    if held.storage_offset() or held.stride()[1:] != layout[1:] or not held_all:
        return None
    return held.as_strided((batch, heads, capacity, width), layout)


def new_cache(config: PreTrainedConfig) -> DynamicCache:
    """An empty cache with the layer kinds of `config`; full-attention layers grow without copying."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def layer_states(cache: DynamicCache, kinds: list[str]) -> tuple[LayerState, ...]:
    """Read every layer's tensors: sum of numel x itemsize, and of the storage behind them."""
    return tuple(
        LayerState(index, kind, stored_tokens(layer), *_bytes(layer))
        for index, (layer, kind) in enumerate(zip(cache.layers, kinds, strict=True))
    )


def stored_tokens(layer: CacheLayerMixin) -> int:
    """Tokens whose K and V the layer holds (not those it has seen); 0 for a layer without K and V."""
    if isinstance(layer, BaseQuantizedLayer):
        return layer.cumulative_length
    keys = getattr(layer, "keys", None)
    return keys.shape[-2] if keys is not None and keys.numel() else 0


def _bytes(layer: CacheLayerMixin) -> tuple[int, int]:
    held, storages = 0, {}
    for tensor in layer_tensors(layer):
        held += tensor.numel() * tensor.element_size()
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return held, sum(storages.values())


def layer_tensors(layer: CacheLayerMixin) -> Iterator[Tensor]:
    """The tensors a layer carries from step to step: K and V, and what indexed or recurrent layers add.

    Of a quantised layer the packed numbers, scales and zero points.
    """
    for name in ("keys", "values", "indexer_keys"):
        if (tensor := getattr(layer, name, None)) is not None:
            yield tensor
    for name in ("_quantized_keys", "_quantized_values"):
        yield from getattr(layer, name, None) or ()
    for name in ("conv_states", "recurrent_states"):
        yield from (state for state in getattr(layer, name, {}).values() if isinstance(state, torch.Tensor))
