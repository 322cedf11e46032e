"""Which layers of a model keep what: kinds, widths and windows, read from its transformers config."""

from dataclasses import dataclass

from transformers import PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

# transformers' names for cache layers -> ours; anything else keeps its own name and has no formula
_KINDS = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "conv": "linear",
    "dummy": "shared",
}


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores of a token: `kv_heads` keys of `key_width` and values of `value_width` numbers.

    `window` is the number of tokens a query sees in a sliding or chunked layer, None in a full one.
    Layers that keep no K and V ("linear": a fixed state; "shared": another layer's) have `kv_heads` 0.
    """

    layer: int
    kind: str
    kv_heads: int
    key_width: int
    value_width: int
    window: int | None = None

    def bytes_per_token(self, itemsize: int) -> int:
        """kv_heads x (key_width + value_width) x itemsize."""
        return self.kv_heads * (self.key_width + self.value_width) * itemsize

    def stored(self, seen: int) -> int:
        """Tokens held after `seen` tokens: a window of W holds W - 1 between steps, as transformers stores it."""
        if not self.kv_heads:
            return 0
        return seen if self.window is None else min(seen, self.window - 1)


def layer_shapes(config: PreTrainedConfig) -> list[LayerShape]:
    """One `LayerShape` a layer, in the model's order, from transformers' own mapping of layer types."""
    config = config.get_text_config(decoder=True)
    kinds, options = get_layer_types_and_kwargs(config)
    return [
        _shape(index, _KINDS.get(kind, kind), layer_config, option.get("sliding_window"))
        for index, (kind, layer_config, option) in enumerate(zip(kinds, config.per_layer_config, options, strict=True))
    ]


def query_heads(config: PreTrainedConfig) -> int:
    """Number of query heads of a layer."""
    return config.get_text_config(decoder=True).num_attention_heads


def _shape(index: int, kind: str, config: PreTrainedConfig, window: int | None) -> LayerShape:
    if kind in ("linear", "shared"):
        return LayerShape(index, kind, 0, 0, 0)
    latent = getattr(config, "kv_lora_rank", None)
    if latent:  # MLA: the latent and the rotary part, one of each a token, whatever the number of heads
        return LayerShape(index, kind, 1, latent, config.qk_rope_head_dim, window)
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return LayerShape(
        index, kind, _kv_heads(config, heads), width, getattr(config, "v_head_dim", None) or width, window
    )


def _kv_heads(config: PreTrainedConfig, heads: int) -> int:
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1  # Falcon-7B
    return getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", None) or heads
