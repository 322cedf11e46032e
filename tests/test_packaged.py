"""The packaged models as converted: every tensor against the GGUF file itself, the tokenizer, and a word of text.

The oracle for the weights is the reference implementation of the format (the `gguf` package) alone.
"""

import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors import safe_open

from kvviz.models.catalogue import CATALOGUE, files
from kvviz.models.convert import folder
from kvviz.models.loading import LanguageModel

_PLAIN = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_LLAMA = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_GEMMA = _LLAMA | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def reader(name: str, place: Path) -> gguf.GGUFReader:
    whole = place / "whole.gguf"
    with whole.open("wb") as target:
        for part in files(CATALOGUE[name]):
            with part.open("rb") as source:
                shutil.copyfileobj(source, target)
    return gguf.GGUFReader(whole)


def hub_name(name: str, layers: dict[str, str]) -> str:
    parts = name.removesuffix(".weight").split(".")
    return f"{_PLAIN[parts[0]]}.weight" if len(parts) == 1 else f"model.layers.{parts[1]}.{layers[parts[2]]}.weight"


def turned(weights: np.ndarray, heads: int) -> np.ndarray:
    """From rotating neighbouring pairs of rows (llama.cpp) to rotating the halves of a head (transformers)."""
    return weights.reshape(heads, -1, 2, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)


def test_smollm2_holds_exactly_the_weights_of_the_package(smollm2: LanguageModel, tmp_path: Path) -> None:
    source = reader("smollm2-135m", tmp_path)
    with safe_open(folder(CATALOGUE["smollm2-135m"]) / "model.safetensors", "np") as converted:
        assert len(source.tensors) == len(list(converted.keys())) == 272
        for tensor in source.tensors:
            expected = gguf.dequantize(tensor.data, tensor.tensor_type)
            if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
                expected = turned(expected, 9 if ".attn_q." in tensor.name else 3)
            assert np.array_equal(converted.get_tensor(hub_name(tensor.name, _LLAMA)), expected), tensor.name


def test_smollm2_is_the_model_the_design_says(smollm2: LanguageModel) -> None:
    config = smollm2.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (30, 9, 3)
    assert (config.head_dim, smollm2.context, config.rope_parameters["rope_theta"]) == (64, 8192, 100000.0)
    assert config.tie_word_embeddings
    specials = smollm2.tokenizer.special_tokens_map
    assert [specials[kind] for kind in ("bos_token", "eos_token", "pad_token")] == [
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    ]
    assert next_word(smollm2, "The capital of France is") == " Paris"


def test_smollm2_cuts_out_every_digit(smollm2: LanguageModel) -> None:
    pieces = {"a  1": ["a", "ĠĠ", "1"], " 100": ["Ġ", "1", "0", "0"], "½ ²": ["Â½", "Ġ", "Â²"]}
    for text, expected in pieces.items():
        assert smollm2.tokenizer.convert_ids_to_tokens(smollm2.tokenizer(text).input_ids) == expected


def test_smollm2_names_every_id_as_the_package_does(smollm2: LanguageModel, tmp_path: Path) -> None:
    tokens = reader("smollm2-135m", tmp_path).fields["tokenizer.ggml.tokens"].contents()
    assert smollm2.tokenizer.convert_ids_to_tokens(range(len(tokens))) == tokens
    assert len(smollm2.tokenizer) == len(tokens) == smollm2.config.vocab_size


def test_gemma_holds_exactly_the_weights_of_the_package(gemma3: LanguageModel, tmp_path: Path) -> None:
    source = reader("gemma-3-270m", tmp_path)
    with safe_open(folder(CATALOGUE["gemma-3-270m"]) / "model.safetensors", "np") as converted:
        assert len(source.tensors) == len(list(converted.keys())) == 236
        for tensor in source.tensors:
            expected = gguf.dequantize(tensor.data, tensor.tensor_type)
            if tensor.name.endswith("norm.weight"):
                expected = expected - 1  # Gemma's code adds the 1 that the file has in it
            assert np.array_equal(converted.get_tensor(hub_name(tensor.name, _GEMMA)), expected), tensor.name


def test_gemma_is_the_hybrid_the_design_says(gemma3: LanguageModel) -> None:
    config = gemma3.config
    assert config.layer_types == (["sliding_attention"] * 5 + ["full_attention"]) * 3
    assert (config.sliding_window, config.num_attention_heads, config.num_key_value_heads) == (512, 4, 1)
    assert (config.head_dim, config.query_pre_attn_scalar, gemma3.context) == (256, 256, 32768)
    assert config.rope_parameters["full_attention"]["rope_theta"] == 1_000_000
    assert config.rope_parameters["sliding_attention"]["rope_theta"] == 10_000
    assert next_word(gemma3, "Paris is the capital of") == " France"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("大家好我是大金", ["大家好", "我是", "大", "金"]),
        (" lead", ["▁lead"]),
        ("two   spaces\n\n", ["two", "▁▁▁", "spaces", "\n\n"]),
        ("12", ["1", "2"]),
        ("\x00", ["<0x00>"]),
        ("<start_of_turn>x", ["<start_of_turn>", "x"]),
        ("", []),
    ],
)
def test_gemma_splits_text_as_sentencepiece_does(text: str, pieces: list[str], gemma3: LanguageModel) -> None:
    ids = gemma3.tokenizer(text).input_ids
    assert gemma3.tokenizer.convert_ids_to_tokens(ids) == ["<bos>", *pieces]
    assert gemma3.tokenizer.decode(ids[1:]) == text


def test_gemma_names_every_id_as_the_package_does(gemma3: LanguageModel, tmp_path: Path) -> None:
    tokens = reader("gemma-3-270m", tmp_path).fields["tokenizer.ggml.tokens"].contents()
    found = gemma3.tokenizer.convert_ids_to_tokens(range(len(tokens)))
    different = [(ours, theirs) for ours, theirs in zip(found, tokens, strict=True) if ours != theirs]
    # runs of spaces are written with SentencePiece's mark, as in the model's own tokenizer
    assert all(ours == "▁" * len(theirs) and not theirs.strip() for ours, theirs in different)
    assert len(different) < 40


def next_word(lm: LanguageModel, text: str) -> str:
    with torch.inference_mode():
        logits = lm.model(**lm.tokenizer(text, return_tensors="pt")).logits
    return lm.tokenizer.decode(logits[0, -1].argmax())
