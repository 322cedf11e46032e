"""Layer kinds and bytes from a config: known models, and what fits where."""

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.geometry.memory import bytes_per_token, cache_bytes, kinds_bytes, tokens_that_fit

# bytes per token in bfloat16 while every layer grows, from the models' published configurations
KNOWN = {
    "SmolLM2-135M": (
        transformers.LlamaConfig(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3),
        23_040,
    ),
    "Llama-3-8B": (
        transformers.LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8),
        131_072,
    ),
    "Qwen3-4B": (
        transformers.Qwen3Config(
            hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128
        ),
        147_456,
    ),
    "GPT-2": (transformers.GPT2Config(), 36_864),
    "Falcon-7B": (transformers.FalconConfig(), 8_192),
    "DeepSeek-V3": (transformers.DeepseekV3Config(), 70_272),
}


@pytest.mark.parametrize("name", KNOWN)
def test_bytes_per_token_of_known_models(name):
    config, expected = KNOWN[name]
    assert bytes_per_token(layer_shapes(config), 2) == expected


def test_gpt_oss_goes_flat_in_half_its_layers():
    config = transformers.GptOssConfig()  # 120b: 36 layers, 18 of them sliding over 128
    shapes = layer_shapes(config)
    assert bytes_per_token(shapes, 2) == 73_728
    assert cache_bytes(shapes, 2, 10_001) - cache_bytes(shapes, 2, 10_000) == 36_864
    assert kinds_bytes(shapes, 2, 10_000)["sliding"] == 18 * 2_048 * 127


def test_layers_that_keep_no_keys_cost_nothing_per_token():
    config = transformers.Qwen3NextConfig(num_hidden_layers=4)
    assert [shape.kv_heads > 0 for shape in layer_shapes(config)] == [False, False, False, True]


HYBRID = [LayerShape(0, "full", 2, 8, 8), LayerShape(1, "sliding", 2, 8, 8, window=16)]


@given(st.integers(0, 5_000_000))
def test_what_fits_fits_and_one_more_does_not(budget):
    tokens = tokens_that_fit(HYBRID, 2, budget)
    assert cache_bytes(HYBRID, 2, tokens) <= budget < cache_bytes(HYBRID, 2, tokens + 1)


def test_a_model_of_windows_alone_never_ends():
    assert tokens_that_fit(HYBRID[1:], 2, 15 * 64) is None
    assert tokens_that_fit(HYBRID[1:], 2, 15 * 64 - 1) == 14
    assert tokens_that_fit(HYBRID, 2, -1) == 0
