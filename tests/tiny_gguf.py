"""A tiny Llama as a packaged GGUF file, written the way llama.cpp's converter writes it."""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from kvviz.models.catalogue import Card
from tests.tiny import CONTEXT, VOCABULARY, config, tokenizer

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def model() -> LlamaForCausalLM:
    """The model that the file holds (seed 3), float32."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return LlamaForCausalLM(config("LlamaConfig", num_hidden_layers=2, rms_norm_eps=1e-5)).eval()


def write(path: Path) -> Path:
    """Write `model()` and the tiny tokenizer to `path`."""
    llama = model()
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, llama)
    _vocabulary(writer)
    for name, weight in llama.state_dict().items():
        writer.add_tensor(_name(name), _layout(name, weight, llama).numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def card(module: str, sha256: str) -> Card:
    """A catalogue entry for a package `module` that holds tiny.gguf."""
    return Card(
        name="tiny", title="Tiny Llama", package="tiny-llama", version="0.1", licence="none", terms="https://tiny",
        requirements="requirements-tiny.txt", command="pip install tiny-llama", parts=((module, "tiny.gguf"),),
        sha256=sha256, note="",
    )  # fmt: skip


def _describe(writer: gguf.GGUFWriter, llama: LlamaForCausalLM) -> None:
    settings = llama.config
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(settings.hidden_size)
    writer.add_block_count(settings.num_hidden_layers)
    writer.add_feed_forward_length(settings.intermediate_size)
    writer.add_head_count(settings.num_attention_heads)
    writer.add_head_count_kv(settings.num_key_value_heads)
    writer.add_layer_norm_rms_eps(settings.rms_norm_eps)
    writer.add_rope_freq_base(settings.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(settings.head_dim)
    writer.add_vocab_size(VOCABULARY)


def _vocabulary(writer: gguf.GGUFWriter) -> None:
    inner = json.loads(tokenizer().backend_tokenizer.to_str())
    tokens = [token for token, _ in sorted(inner["model"]["vocab"].items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if index < 3 else 1 for index in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in inner["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)


def _name(name: str) -> str:
    plain = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in plain:
        return plain[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_NAMES[rest.removesuffix('.weight')]}.weight"


def _layout(name: str, weight: Tensor, llama: LlamaForCausalLM) -> Tensor:
    """llama.cpp rotates neighbouring pairs, transformers the two halves of a head: rows of q and k change places."""
    for part, heads in (
        ("q_proj", llama.config.num_attention_heads),
        ("k_proj", llama.config.num_key_value_heads),
    ):
        if part in name:
            return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape).contiguous()
    return weight
