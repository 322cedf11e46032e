"""Which layers of a model keep what: kinds, widths, windows and states, read from its transformers config."""

from dataclasses import dataclass

from transformers import PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

from kvviz.geometry.dtypes import Dtype, vector_bytes
from kvviz.geometry.states import State, state_of

# transformers' names for cache layers -> ours; anything else keeps its own name and has no formula
_KINDS = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "indexed_attention": "full",  # sparse attention: all keys stay, and an indexer's key beside them
    "hybrid": "full",  # attention and a state space side by side: K, V and a state
    "hybrid_sliding": "sliding",
    "linear_attention": "linear",
    "conv": "linear",
    "dummy": "shared",
}
_WITH_STATE = {"hybrid", "hybrid_sliding", "linear_attention", "conv"}
KNOWN_KINDS = ("full", "sliding", "chunked", "linear", "shared", "none")

_SLIDING_HEADS = {"mimo_v2_flash": 2}  # sliding layers have this many times the config's KV heads
_NO_STATE = State()
_RECURRENT_ITEMSIZE = 4  # recurrent states are kept in float32, whatever the model's dtype


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores of a token: `kv_heads` keys of `key_width` and values of `value_width` numbers.

    `window` is the number of tokens a query sees in a sliding or chunked layer, None in a full one; `sinks` first
    tokens stay beside the window. `index_width` is the width of an indexer's key (sparse attention).
    `state` does not grow. Layers that keep no K and V ("linear": a state alone; "shared": another layer's;
    "none": no attention) have `kv_heads` 0. `query_heads` and `head_widths` (key, value) describe the attention that
    the stored entries serve: for latent attention those of an expanded head. `copies`: transformers stores every
    key/value head this many times.
    """

    layer: int
    kind: str
    kv_heads: int
    key_width: int
    value_width: int
    window: int | None = None
    index_width: int = 0
    sinks: int = 0
    state: State | None = _NO_STATE  # None: has one, and there is no formula for its size
    query_heads: int = 0
    head_widths: tuple[int, int] = (0, 0)
    copies: int = 1

    @property
    def latent(self) -> bool:
        """Whether the layer stores a latent from which keys and values are computed (MLA)."""
        return bool(self.kv_heads) and self.head_widths not in ((0, 0), (self.key_width, self.value_width))

    def bytes_per_token(self, itemsize: int | Dtype) -> int:
        """kv_heads x (key_width + value_width) x itemsize, and the indexer's key."""
        pair = vector_bytes(itemsize, self.key_width) + vector_bytes(itemsize, self.value_width)
        return self.kv_heads * pair + vector_bytes(itemsize, self.index_width)

    def fixed_bytes(self, itemsize: int | Dtype) -> int:
        """Bytes of a sequence of any length: states, and scales that a layer has once."""
        once = itemsize.layer_bytes if isinstance(itemsize, Dtype) and self.kv_heads else 0
        if not self.state:
            return once
        item = itemsize.state_itemsize if isinstance(itemsize, Dtype) else itemsize
        return (
            self.state.conv_channels * self.state.conv_kernel * item + self.state.recurrent * _RECURRENT_ITEMSIZE + once
        )

    def stored(self, seen: int) -> int:
        """Tokens held after `seen` tokens: a window of W holds W - 1 between steps, as transformers stores it."""
        if not self.kv_heads:
            return 0
        return seen if self.window is None else min(seen, self.sinks + self.window - 1)

    def visible(self, seen: int) -> int:
        """Tokens that the newest query may look at, itself included: at most W, and the sinks."""
        if not self.kv_heads:
            return 0
        return seen if self.window is None else min(seen, self.sinks + self.window)


def layer_shapes(config: PreTrainedConfig) -> list[LayerShape]:
    """One `LayerShape` a layer, in the model's order, from transformers' own mapping of layer types."""
    config = config.get_text_config(decoder=True)
    kinds, options = get_layer_types_and_kwargs(config)
    sharing = getattr(config, "kv_sharing_modes", None) or [None] * len(kinds)
    return [
        _shape(index, _kind(kind, mode), kind, layer_config, option.get("sliding_window"))
        for index, (kind, mode, layer_config, option) in enumerate(
            zip(kinds, sharing, config.per_layer_config, options, strict=True)
        )
    ]


def query_heads(config: PreTrainedConfig) -> int:
    """Number of query heads of a layer."""
    return config.get_text_config(decoder=True).num_attention_heads


def _kind(kind: str, sharing: str | None) -> str:
    return "none" if kind == "dummy" and sharing != "reuse" else _KINDS.get(kind, kind)


def _shape(index: int, kind: str, theirs: str, config: PreTrainedConfig, window: int | None) -> LayerShape:
    state = state_of(config, theirs == "conv") if theirs in _WITH_STATE else _NO_STATE
    if kind in ("linear", "shared", "none"):
        return LayerShape(index, kind, 0, 0, 0, state=state)
    heads = config.num_attention_heads
    indexer = (getattr(config, "index_head_dim", None) or 0) if theirs == "indexed_attention" else 0
    latent = getattr(config, "kv_lora_rank", None)
    if latent:  # MLA: the latent and the rotary part, one of each a token, whatever the number of heads
        rotary = config.qk_rope_head_dim
        widths = (getattr(config, "qk_nope_head_dim", 0) + rotary, config.v_head_dim)
        return LayerShape(index, kind, 1, latent, rotary, window, indexer, 0, state, heads, widths)
    width = _head_width(config, heads)
    widths = (width, getattr(config, "v_head_dim", None) or width)
    kv_heads = _kv_heads(config, heads) * (_SLIDING_HEADS.get(config.model_type, 1) if kind == "sliding" else 1)
    # Falcon's newer decoder hands its keys and values to the cache once for every query head
    copies = heads // kv_heads if config.model_type == "falcon" and config.new_decoder_architecture else 1
    return LayerShape(index, kind, kv_heads, *widths, window, indexer, 0, state, heads, widths, copies)


def _head_width(config: PreTrainedConfig, heads: int) -> int:
    given = getattr(config, "head_dim", None) or getattr(config, "attention_head_dim", None)
    return given or config.hidden_size // heads


def _kv_heads(config: PreTrainedConfig, heads: int) -> int:
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1  # Falcon-7B
    return getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", None) or heads
