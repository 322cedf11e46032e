"""The real modelling code run without weights, on the meta device: what its cache holds, and its parameters."""

import copy
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig

from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.geometry.states import State
from kvviz.models.folders import brief

LONGEST = 20_000  # tokens; enough to fill the longest window in use
_SHORTEST = 24
_WITH_STATES = 96  # some modelling code walks through a state token by token
_MOST_LAYERS = 512

_building = threading.Lock()


@dataclass(frozen=True, slots=True)
class Observation:
    """What one forward over `tokens` tokens left in the cache of a bfloat16 model, batch 1.

    `layers` are bytes a layer, counted from its tensors; `parameters` the numbers the model consists of (None where
    it could not be built). `reason` is why the code could not be run, in its own words, and empty where it could.
    """

    tokens: int
    layers: tuple[int, ...] = ()
    parameters: int | None = None
    reason: str = ""


def observe(config: PreTrainedConfig) -> Observation:
    """Build the language model of `config` on the meta device and run it once; takes no memory for weights.

    The result is kept for equal configs. Never raises: modelling code that needs values gives a `reason`.
    """
    return _observe(_Key(config.get_text_config(decoder=True)))


class _Key:
    """A config that is equal to another when it says the same."""

    def __init__(self, config: PreTrainedConfig) -> None:
        self.config = config
        self.text = config.to_json_string(use_diff=False)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.text == other.text


@lru_cache(maxsize=128)
def _observe(key: _Key) -> Observation:
    try:
        config = _prepared(key.config)
        tokens = _tokens(layer_shapes(config))
        if config.num_hidden_layers > _MOST_LAYERS:
            return Observation(tokens, reason=f"num_hidden_layers > {_MOST_LAYERS}")
        with _building:
            model = _built(config)
    except Exception as error:  # a config from anywhere may break the library's code in any way
        return Observation(0, reason=brief(error))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    try:
        return Observation(tokens, _run(model, tokens), parameters)
    except Exception as error:
        return Observation(tokens, (), parameters, brief(error))


def _prepared(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy that can be built here: on no dtype of its own, and without what needs values of tensors."""
    config = copy.deepcopy(config)
    config.dtype = None  # else building would set torch's default dtype for every thread
    if getattr(config, "activation_sparsity_pattern", None):
        config.activation_sparsity_pattern = [0.0] * config.num_hidden_layers  # of the MLP; reads a tensor's value
    with suppress(Exception):  # a few configs insist on one
        config.pad_token_id = None  # else some models look for it among the ids
    with suppress(AttributeError):
        del config.quantization_config
    return config


def _tokens(shapes: Sequence[LayerShape]) -> int:
    """A length that fills every window, where that is quick."""
    longest = max((shape.window for shape in shapes if shape.window), default=0) + 8
    most = _WITH_STATES if any(shape.state != State() for shape in shapes) else LONGEST
    return min(max(longest, _SHORTEST), most)


def _built(config: PreTrainedConfig) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False).to(torch.bfloat16).eval()


def _run(model: Any, tokens: int) -> tuple[int, ...]:
    with torch.device("meta"), torch.inference_mode():
        output = model(input_ids=torch.zeros((1, tokens), dtype=torch.long), use_cache=True)
    cache = output["cache"] if "cache" in output else output["past_key_values"]
    return tuple(_bytes(vars(layer)) for layer in cache.layers)


def _bytes(parts: Mapping[str, object]) -> int:
    """Bytes of a layer's tensors of numbers; counters and positions, which are integers, are no part of the cache."""
    held = [part for value in parts.values() for part in (value.values() if isinstance(value, dict) else [value])]
    tensors = [part for part in held if isinstance(part, torch.Tensor) and part.is_floating_point()]
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)
