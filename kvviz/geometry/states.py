"""Sizes of recurrent and convolution states, which do not grow with the text, from the fields of a config."""

from typing import Any, NamedTuple


class State(NamedTuple):
    """What a layer keeps of a sequence of any length: `conv_channels` x `conv_kernel` numbers in the model's dtype,
    and `recurrent` numbers in float32."""

    conv_channels: int = 0
    conv_kernel: int = 0
    recurrent: int = 0


def state_of(config: Any, convolution_alone: bool = False) -> State | None:
    """The state of a linear attention, state space or (`convolution_alone`) short convolution layer.

    None where the fields of `config` belong to no family known here.
    """
    if convolution_alone:
        kernel = _first(config, "conv_L_cache")
        return State(config.hidden_size, kernel) if kernel else None
    if _first(config, "linear_num_value_heads"):
        return _delta_net(config)
    if _first(config, "linear_num_heads") and _first(config, "linear_head_dim"):
        return _delta_attention(config)
    return _mamba_heads(config) or _mamba(config)


def _delta_net(config: Any) -> State:
    """Gated delta net (Qwen3-Next, Qwen3.5, OLMo hybrid)."""
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    kernel = config.linear_conv_kernel_dim
    return State(2 * keys + values, kernel, values * config.linear_key_head_dim)


def _delta_attention(config: Any) -> State:
    """Kimi's delta attention: queries, keys and values of equal width go through the convolution."""
    width = config.linear_num_heads * config.linear_head_dim
    return State(3 * width, config.linear_conv_kernel_dim, width * config.linear_head_dim)


def _mamba_heads(config: Any) -> State | None:
    """State spaces with heads and groups (Mamba-2 and the hybrids made of it)."""
    heads = _first(config, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    width = _first(config, "mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim")
    groups = _first(config, "n_groups", "mamba_n_groups", "mamba_ngroups")
    state, kernel = _state_and_kernel(config)
    if not (heads and groups and state and kernel and isinstance(width, int)):
        return None
    inner = heads * width
    return State(inner + 2 * groups * state, kernel, inner * state)


def _mamba(config: Any) -> State | None:
    """State spaces with one state a channel (Mamba, Jamba, Falcon-Mamba)."""
    state, kernel = _state_and_kernel(config)
    expand = _first(config, "mamba_expand", "expand")
    if not (state and kernel and expand):
        return None
    inner = int(expand * config.hidden_size)
    return State(inner, kernel, inner * state)


def _state_and_kernel(config: Any) -> tuple[int | None, int | None]:
    return _first(config, "ssm_state_size", "mamba_d_state", "state_size"), _first(
        config, "conv_kernel", "mamba_d_conv"
    )


def _first(config: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(config, name, None))), None)
