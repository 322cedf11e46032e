"""Tiny random models of many families, loaded the way real ones are: saved to a folder, then `load`."""

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

from kvviz.models.loading import LanguageModel, load

VOCABULARY = 300
CONTEXT = 256
_TEXT = ["the cat sat on the mat and the dog sat on the log", "one two three four five six seven eight nine ten"]


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: three specials, all 256 bytes, merges up to 300 tokens; adds no BOS."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<bos>", "<eos>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(_TEXT * 4, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")


def config(kind: str, **changes: object) -> PreTrainedConfig:
    """A small configuration of class `kind`; large initial weights, so that greedy text is not one token repeated."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }
    return getattr(transformers, kind)(**(sizes | changes))


def save(settings: PreTrainedConfig, folder: Path, seed: int = 0) -> Path:
    """A random model of these settings and the tokenizer, in `folder`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(settings)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    # from_config writes generation settings that newer versions may warn about; the ids are all that is needed
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))
    return folder


_home = tempfile.TemporaryDirectory(prefix="kvviz-tiny-")


def _build(settings: PreTrainedConfig, seed: int = 0) -> LanguageModel:
    folder = Path(tempfile.mkdtemp(prefix=f"{settings.model_type}-", dir=_home.name))
    return load(str(save(settings, folder, seed)), device="cpu", dtype="float32")


@cache
def tiny_llama() -> LanguageModel:
    """GQA, four query and two key/value heads, full attention."""
    return _build(config("LlamaConfig"))


@cache
def tiny_mistral() -> LanguageModel:
    """Every layer slides over a window of 8."""
    return _build(config("MistralConfig", sliding_window=8), seed=1)


@cache
def tiny_gemma3() -> LanguageModel:
    """Hybrid 5:1, window 8, one key/value head."""
    return _build(
        config(
            "Gemma3TextConfig",
            num_hidden_layers=6,
            num_key_value_heads=1,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=8,
            tie_word_embeddings=False,  # tied and random, it would repeat its input
        )
    )


@cache
def tiny_gpt2() -> LanguageModel:
    """Multi-head attention, learned positions: cannot go beyond its context."""
    return _build(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=48,
            n_layer=3,
            n_head=4,
            n_positions=CONTEXT,
            initializer_range=0.3,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=2,
        )
    )


@cache
def tiny_qwen3_next() -> LanguageModel:
    """Hybrid: three linear (recurrent state, no keys) layers and one of softmax attention."""
    return _build(
        config(
            "Qwen3NextConfig",
            num_hidden_layers=4,
            layer_types=["linear_attention"] * 3 + ["full_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            head_dim=16,
        )
    )


@cache
def tiny_deepseek() -> LanguageModel:
    """Multi-head latent attention: a latent of 16 and a rotary key of 8 are cached."""
    return _build(
        config(
            "DeepseekV3Config",
            num_key_value_heads=4,
            kv_lora_rank=16,
            q_lora_rank=24,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=16,
            head_dim=8,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_shared_experts=1,
            n_group=1,
            topk_group=1,
            moe_intermediate_size=32,
            first_k_dense_replace=1,
        )
    )


@cache
def tiny_gpt_oss() -> LanguageModel:
    """Alternating sliding (window 8) and full layers with learned attention sinks."""
    return _build(
        config(
            "GptOssConfig",
            num_hidden_layers=4,
            layer_types=["sliding_attention", "full_attention"] * 2,
            sliding_window=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            head_dim=16,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    )


@cache
def tiny_gemma2() -> LanguageModel:
    """Soft-capped scores, alternating sliding (window 8) and full layers."""
    return _build(
        config(
            "Gemma2Config",
            num_hidden_layers=4,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=8,
            attn_logit_softcapping=5.0,
            tie_word_embeddings=False,
        )
    )


@cache
def tiny_phi3() -> LanguageModel:
    """Queries, keys and values from one projection."""
    return _build(config("Phi3Config", sliding_window=None))


@cache
def tiny_gpt_neox() -> LanguageModel:
    """Rotary positions on a part of each head, attention and MLP side by side."""
    sizes = {"num_key_value_heads": None, "head_dim": None}
    return _build(config("GPTNeoXConfig", **sizes, rotary_pct=0.5, tie_word_embeddings=False), seed=2)


@cache
def tiny_opt() -> LanguageModel:
    """Learned positions with an offset."""
    return _build(
        transformers.OPTConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            word_embed_proj_dim=48,
            ffn_dim=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT,
            init_std=0.3,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=2,
        )
    )


@cache
def tiny_bloom() -> LanguageModel:
    """Computes its attention itself, with ALiBi: cannot be observed."""
    return _build(
        transformers.BloomConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            n_layer=3,
            n_head=4,
            initializer_range=0.3,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=2,
            tie_word_embeddings=False,
        ),
        seed=1,
    )


FAMILIES: dict[str, Callable[[], LanguageModel]] = {
    "llama": tiny_llama,
    "mistral": tiny_mistral,
    "gemma3": tiny_gemma3,
    "gpt2": tiny_gpt2,
    "qwen3_next": tiny_qwen3_next,
    "deepseek": tiny_deepseek,
    "gpt_oss": tiny_gpt_oss,
    "gemma2": tiny_gemma2,
    "phi3": tiny_phi3,
    "gpt_neox": tiny_gpt_neox,
    "opt": tiny_opt,
    "bloom": tiny_bloom,
}
