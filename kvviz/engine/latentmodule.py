"""A small attention module of transformers' DeepSeek-V3 with random weights, and what it caches."""

import torch
from torch import Tensor, nn
from transformers import DeepseekV3Config, DynamicCache
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from kvviz.engine.latent import LatentCall
from kvviz.engine.probe import ATTENTION, observe
from kvviz.engine.scores import AttentionCall
from kvviz.geometry.latent import LatentSizes, check_lengths

HIDDEN = 128  # width of the random hidden states; nothing that is compared depends on it


class LatentModule:
    """One attention layer and its rotary positions; the same `seed` gives the same weights and hidden states.

    `query_rank` puts DeepSeek's low-rank projection before the queries; `interleave` says which numbers of the rotary
    part turn together: neighbours, or one of each half.
    """

    def __init__(
        self,
        sizes: LatentSizes,
        dtype: torch.dtype,
        *,
        query_rank: int | None = None,
        interleave: bool = True,
        seed: int = 0,
    ) -> None:
        config = DeepseekV3Config(
            hidden_size=HIDDEN, num_attention_heads=sizes.heads, num_key_value_heads=sizes.heads,
            kv_lora_rank=sizes.rank, q_lora_rank=query_rank, qk_rope_head_dim=sizes.rotary,
            qk_nope_head_dim=sizes.nope, v_head_dim=sizes.value, rope_interleave=interleave, num_hidden_layers=1,
        )  # fmt: skip
        config._attn_implementation = ATTENTION
        self.sizes, self.dtype = sizes, dtype
        self.random = torch.Generator().manual_seed(seed)
        with torch.device("meta"):  # torch's own start values would come from the generator that all threads share
            attention = DeepseekV3Attention(config, layer_idx=0)
        self.attention = attention.to(dtype).to_empty(device="cpu").eval()
        self.positions = DeepseekV3RotaryEmbedding(config)
        with torch.no_grad():
            for parameter in self.attention.parameters():
                self._fill(parameter)

    def _fill(self, parameter: nn.Parameter) -> None:
        if parameter.dim() == 1:  # the scale of a norm
            parameter.uniform_(0.5, 1.5, generator=self.random)
        else:
            parameter.normal_(0, parameter.shape[1] ** -0.5, generator=self.random)

    @torch.inference_mode()
    def attend(self, tokens: int, new: int = 1) -> tuple[LatentCall, Tensor]:
        """Cache all but the last `new` of `tokens` random hidden states, then attend with those.

        What the module had at hand for it, and its own output (new, hidden). Raises Refused for impossible lengths.
        """
        check_lengths(tokens, new)
        hidden = torch.randn(1, tokens, HIDDEN, dtype=self.dtype, generator=self.random)
        cache, heard = DynamicCache(), []
        with observe(heard.append):
            for start, stop in ((0, tokens - new), (tokens - new, tokens)):
                if start < stop:
                    output = self._forward(hidden[:, start:stop], start, cache)
        return latent_call(heard[-1], cache.layers[0].keys, cache.layers[0].values), output

    def _forward(self, hidden: Tensor, start: int, cache: DynamicCache) -> Tensor:
        new = hidden.shape[1]
        positions = torch.arange(start, start + new)[None]
        mask = torch.ones(1, 1, new, start + new, dtype=torch.bool).tril(start)
        return self.attention(hidden, self.positions(hidden, positions), mask, cache=cache)[0][0]


def latent_call(call: AttentionCall, latent: Tensor, rotary: Tensor) -> LatentCall:
    """What both ways are computed from: the module's query and weight, and the cached (1, 1, T, ...) of its layer."""
    module = call.module
    up, scaling = module.kv_b_proj.weight.detach(), call.options["scaling"]
    return LatentCall(call.query[0], latent[0, 0], rotary[0, 0], up, module.qk_nope_head_dim, scaling)
