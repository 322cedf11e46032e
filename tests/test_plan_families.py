"""Small random models of many families: what the tensors of a cache hold after 12 tokens is what was planned."""

from itertools import chain

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

import kvviz

TOKENS, WINDOW = 12, 8
SIZES = {"vocab_size": 300, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 256,
         "pad_token_id": 2}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
HYBRID = {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": WINDOW}
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8,
          "qk_nope_head_dim": 16, "v_head_dim": 16, "head_dim": 8}  # fmt: skip
ROUTED = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
} | EXPERTS
OLD = {"num_key_value_heads": None, "head_dim": None}
MAMBA = {"mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2}

FAMILIES: dict[str, tuple[str, dict]] = {
    "llama": ("LlamaConfig", {}),
    "llama, wide heads": ("LlamaConfig", {"head_dim": 20}),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}),
    "mixtral": ("MixtralConfig", {"sliding_window": None} | EXPERTS),
    "qwen2": ("Qwen2Config", {}),
    "qwen2, some layers slide": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3_moe": ("Qwen3MoeConfig", EXPERTS),
    "gemma2": ("Gemma2Config", HYBRID | {"head_dim": 16, "query_pre_attn_scalar": 16}),
    "gemma3": ("Gemma3TextConfig", {"num_hidden_layers": 6, "sliding_window": WINDOW, "num_key_value_heads": 1}),
    "gemma3n": (
        "Gemma3nTextConfig",
        {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "sliding_window": WINDOW, "hidden_size_per_layer_input": 8,
         "layer_types": ["sliding_attention", "full_attention"] * 2, "vocab_size_per_layer_input": 300,
         "laurel_rank": 4, "intermediate_size": 64, "activation_sparsity_pattern": [0.0] * 4},
    ),
    "gemma4": (
        "Gemma4TextConfig",
        HYBRID | {"head_dim": 16, "global_head_dim": 24, "num_global_key_value_heads": 1, "attention_k_eq_v": True,
                  "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0},
    ),
    "gpt_oss": ("GptOssConfig", HYBRID | EXPERTS | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    "llama4": (
        "Llama4TextConfig",
        {"num_hidden_layers": 4, "attention_chunk_size": WINDOW, "intermediate_size_mlp": 64, "num_local_experts": 2,
         "num_experts_per_tok": 1, "head_dim": 16},
    ),
    "phi3": ("Phi3Config", {"sliding_window": WINDOW}),
    "olmo2": ("Olmo2Config", {}),
    "smollm3": ("SmolLM3Config", {}),
    "cohere2": ("Cohere2Config", HYBRID),
    "exaone4": ("Exaone4Config", HYBRID),
    "starcoder2": ("Starcoder2Config", {"sliding_window": None}),
    "granite": ("GraniteConfig", {}),
    "gpt_neox": ("GPTNeoXConfig", OLD),
    "gptj": ("GPTJConfig", OLD | {"n_embd": 48, "n_layer": 3, "n_head": 4, "rotary_dim": 4}),
    "gpt2": ("GPT2Config", OLD),
    "opt": ("OPTConfig", OLD | {"ffn_dim": 64, "word_embed_proj_dim": 48}),
    "bloom": ("BloomConfig", OLD | {"n_layer": 3, "n_head": 4}),
    "mpt": ("MptConfig", OLD | {"d_model": 48, "n_layers": 3, "n_heads": 4}),
    "falcon, multi-query": ("FalconConfig", OLD | {"multi_query": True}),
    "falcon, new decoder": ("FalconConfig", OLD | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "gpt_bigcode": ("GPTBigCodeConfig", OLD | {"multi_query": True}),
    "mimo_v2_flash": ("MiMoV2FlashConfig", HYBRID | ROUTED | {"head_dim": 16, "v_head_dim": 8}),
    "deepseek_v2": ("DeepseekV2Config", LATENT | ROUTED),
    "deepseek_v3": ("DeepseekV3Config", LATENT | ROUTED),
    "minicpm3": ("MiniCPM3Config", LATENT),
    "qwen3_next": (
        "Qwen3NextConfig",
        {"num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"],
         "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "head_dim": 16,
         "shared_expert_intermediate_size": 32} | EXPERTS,
    ),
    "jamba": (
        "JambaConfig",
        {"num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2, "mamba_dt_rank": 4,
         "use_mamba_kernels": False, "head_dim": None} | MAMBA | EXPERTS,
    ),
    "falcon_h1": (
        "FalconH1Config",
        {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8} | MAMBA,
    ),
    "mamba2": (
        "Mamba2Config",
        {"num_heads": 12, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8, "expand": 2},
    ),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention", "conv"], "head_dim": None, "conv_L_cache": 3}),
}  # fmt: skip


def built(name: str) -> transformers.PreTrainedModel:
    kind, changes = FAMILIES[name]
    settings = {key: value for key, value in (SIZES | changes).items() if key not in changes or value is not None}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(getattr(transformers, kind)(**settings), dtype=torch.float32).eval()


def held(cache: transformers.Cache) -> list[int]:
    """Bytes of each layer's floating point tensors, found without knowing what they are called."""
    totals = []
    for layer in cache.layers:
        parts = chain(*(part.values() if isinstance(part, dict) else [part] for part in vars(layer).values()))
        tensors = [part for part in parts if isinstance(part, torch.Tensor) and part.dtype == torch.float32]
        totals.append(sum(tensor.nelement() * 4 for tensor in tensors))
    return totals


@pytest.mark.parametrize("name", FAMILIES)
def test_measured_bytes_are_planned_bytes(name: str) -> None:
    model = built(name)
    plan = kvviz.plan(model.config, TOKENS, dtype="float32")
    cache = transformers.DynamicCache(config=model.config)
    ids = torch.randint(3, 300, (1, TOKENS))
    with torch.inference_mode():
        for start, end in ((0, 10), (10, 11), (11, 12)):  # a prefill and two steps
            model(input_ids=ids[:, start:end], cache=cache, use_cache=True)
    assert list(plan.layers.bytes) == held(cache)
    assert plan.total_bytes == sum(held(cache)) > 0
    assert plan.checked.status == "equal", plan.checked
    assert plan.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_there_are_enough_families_and_kinds() -> None:
    kinds = {kind for name in FAMILIES for kind in kvviz.plan(built(name).config, check=False).layers.kind}
    assert kinds == {"full", "sliding", "chunked", "linear", "shared"}
    assert len({built(name).config.model_type for name in FAMILIES}) >= 20
