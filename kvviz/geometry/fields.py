"""The fields of a config as plain JSON: checked for sense, and a formula from them where the model type is unknown."""

from collections.abc import Mapping
from typing import Any

from kvviz.errors import Refused
from kvviz.geometry.layers import LayerShape

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_WIDTHS = ("head_dim", "attention_head_dim", "kv_channels", "head_size")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_WINDOWS = ("sliding_window", "sliding_window_size", "attention_chunk_size")
_LATENTS = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "q_lora_rank")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_OTHERS = ("vocab_size", "intermediate_size", "max_position_embeddings", *_LATENTS, *_EXPERTS)
_SIZES = (*LAYERS, *_HEADS, *_KV_HEADS, *_WIDTHS, *_HIDDEN, *_WINDOWS, *_OTHERS)
_MOST, _MOST_LAYERS = 10**9, 10_000
_ZERO = {"q_lora_rank", "kv_lora_rank", *_EXPERTS, *_WINDOWS}
_SLIDING = ("sliding_attention", "chunked_attention")
_STATES = ("linear_attention", "mamba", "recurrent", "conv")


def text_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the language model: those of `text_config` where the config has one."""
    for part in ("text_config", "llm_config", "language_config"):
        if isinstance(fields.get(part), Mapping):
            return fields[part]
    return fields


def check(fields: Mapping[str, Any]) -> None:
    """Raise Refused for fields that make no sense: wrong types, negative or huge numbers, contradictions."""
    fields = text_fields(fields)
    if not isinstance(fields.get("model_type"), str) and _first(fields, LAYERS) is None:
        raise Refused(
            "This is not the configuration of a model: it has neither model_type nor num_hidden_layers. "
            "Give the contents of a config.json."
        )
    for name in _SIZES:
        _check_size(name, fields.get(name))
    layers, heads, kv_heads = (_first(fields, names) for names in (LAYERS, _HEADS, _KV_HEADS))
    if layers is not None and layers > _MOST_LAYERS:
        raise _unlikely("num_hidden_layers", layers)
    if isinstance(kinds := fields.get("layer_types"), list) and layers is not None and len(kinds) != layers:
        raise Refused(
            "The configuration contradicts itself: layer_types names {named} layers, num_hidden_layers says {layers}. "
            "Correct one of them.",
            named=len(kinds),
            layers=layers,
        )
    if isinstance(heads, int) and isinstance(kv_heads, int) and heads % kv_heads:
        raise Refused(
            "The configuration contradicts itself: {heads} query heads cannot share {kv_heads} key/value heads evenly. "
            "Correct one of them.",
            heads=heads,
            kv_heads=kv_heads,
        )


def _check_size(name: str, value: object) -> None:
    if value is None or isinstance(value, list):  # some families give a number a layer
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(
            "The field {name} must be a whole number, not {value}. Correct it.", name=name, value=repr(value)[:40]
        )
    if value < (0 if name in _ZERO else 1) or value > _MOST:
        raise _unlikely(name, value)


def _unlikely(name: str, value: object) -> Refused:
    return Refused("The field {name} is {value}, which no model has. Correct it.", name=name, value=str(value)[:40])


def assumed(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the fields a cache depends on that the config leaves out, so that defaults stand in for them."""
    fields = text_fields(fields)
    needed = {"num_hidden_layers": LAYERS, "num_attention_heads": _HEADS, "hidden_size": _HIDDEN}
    return tuple(name for name, names in needed.items() if _first(fields, names) is None)


def shapes(fields: Mapping[str, Any]) -> list[LayerShape]:
    """Layers from the common fields alone, for a model type nobody here knows. Raises Refused where they are missing.

    Understands latents (kv_lora_rank), windows (sliding_window, layer_types, use_sliding_window) and multi_query.
    """
    fields = text_fields(fields)
    layers, heads = _needed(fields, LAYERS), _needed(fields, _HEADS)
    kinds = fields.get("layer_types") if isinstance(fields.get("layer_types"), list) else None
    window = None if fields.get("use_sliding_window") is False else _first(fields, _WINDOWS)
    return [_shape(index, fields, heads, window or None, kinds and str(kinds[index])) for index in range(layers)]


def _shape(index: int, fields: Mapping[str, Any], heads: int, window: int | None, kind: str | None) -> LayerShape:
    if kind in _STATES:
        return LayerShape(index, "linear", 0, 0, 0, state=None)
    slides = window is not None and (kind is None or kind in _SLIDING)
    known = ("chunked" if kind == "chunked_attention" else "sliding", window) if slides else ("full", None)
    if rank := fields.get("kv_lora_rank"):
        rotary, value = fields.get("qk_rope_head_dim") or 0, fields.get("v_head_dim") or 0
        widths = ((fields.get("qk_nope_head_dim") or 0) + rotary, value)
        return LayerShape(index, known[0], 1, rank, rotary, known[1], query_heads=heads, head_widths=widths)
    width = _first(fields, _WIDTHS)
    if width is None:
        hidden = _needed(fields, _HIDDEN)
        if hidden % heads:
            raise Refused(
                "The configuration contradicts itself: hidden_size {hidden} cannot be divided by {heads} heads. "
                "Correct one of them, or add head_dim.",
                hidden=hidden,
                heads=heads,
            )
        width = hidden // heads
    kv_heads = 1 if fields.get("multi_query") is True else _first(fields, _KV_HEADS) or heads
    widths = (width, fields.get("v_head_dim") or width)
    return LayerShape(index, known[0], kv_heads, *widths, known[1], query_heads=heads, head_widths=widths)


def _needed(fields: Mapping[str, Any], names: tuple[str, ...]) -> int:
    value = _first(fields, names)
    if not isinstance(value, int):
        raise Refused("The configuration has no {name}. Add it.", name=names[0])
    return value


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
