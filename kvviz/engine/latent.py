"""One layer's latent attention, computed both ways from the same cached latents and rotary keys.

Letters as in `kvviz.geometry.latent`: c latents, k_R rotary keys, W_UK and W_UV the up-projections of a head, q_N and
q_R the parts of its query. A score is q_N (c W_UK)ᵀ + q_R k_Rᵀ, and (q_N W_UKᵀ) cᵀ is the same product with the
brackets set elsewhere; so it is for the values.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvviz.geometry.latent import LatentSizes

_HIDDEN = float("-inf")


@dataclass(frozen=True, eq=False, slots=True)
class LatentCall:
    """What a layer has when its newest tokens attend: n queries, the last ones of T cached tokens.

    query (H, n, d_N + d_R); latent (T, r) and rotary (T, d_R) as cached; up (H (d_N + d_V), r), the weight that makes
    keys and values of latents, head after head. Scores are multiplied by `scaling`.
    """

    query: Tensor
    latent: Tensor
    rotary: Tensor
    up: Tensor
    nope: int
    scaling: float

    @property
    def sizes(self) -> LatentSizes:
        """H, r, d_R, d_N and d_V, read from the tensors."""
        heads, rank, rotary = self.query.shape[0], self.latent.shape[1], self.rotary.shape[1]
        return LatentSizes(heads, rank, rotary, self.nope, self.up.shape[0] // heads - self.nope)

    def to(self, dtype: torch.dtype) -> "LatentCall":
        """The same numbers in another format."""
        names = ("query", "latent", "rotary", "up")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})


def expand(call: LatentCall) -> tuple[Tensor, Tensor]:
    """K (H, T, d_N + d_R) and V (H, T, d_V) made from the latents, in new memory, as transformers makes them."""
    heads, tokens = call.query.shape[0], call.latent.shape[0]
    both = torch.nn.functional.linear(call.latent, call.up).view(tokens, heads, -1).transpose(0, 1)
    key, value = both[..., : call.nope], both[..., call.nope :]
    return torch.cat((key, call.rotary.expand(heads, -1, -1)), dim=-1), value.contiguous()


def expanded(call: LatentCall) -> Tensor:
    """(H, n, d_V): keys and values of all cached tokens first, then the attention of any other model."""
    return grouped(call.query, *expand(call), call.scaling)


def grouped(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """(H, n, d_V) of MHA and GQA: query (H, n, d), key (g, T, d), value (g, T, d_V), g dividing H."""
    heads, new, _ = query.shape
    shared = query.reshape(key.shape[0], -1, query.shape[-1])
    scores = torch.matmul(shared, key.transpose(1, 2)).view(heads, new, -1) * scaling
    weights = _softmax(scores).view(key.shape[0], -1, key.shape[1])
    return torch.matmul(weights, value).view(heads, new, -1)


def absorbed(call: LatentCall) -> Tensor:
    """(H, n, d_V): W_UK goes into the query and W_UV into the output; no key and no value is ever made."""
    heads = call.query.shape[0]
    up = call.up.view(heads, -1, call.up.shape[1])
    up_key, up_value = up[:, : call.nope], up[:, call.nope :]
    query = torch.matmul(call.query[..., : call.nope], up_key)  # q̃ = q_N W_UKᵀ: (H, n, r)
    rotary = call.query[..., call.nope :]
    scores = torch.matmul(query, call.latent.T) + torch.matmul(rotary, call.rotary.T)
    mixed = torch.matmul(_softmax(scores * call.scaling), call.latent)  # u: (H, n, r)
    return torch.matmul(mixed, up_value.transpose(1, 2))


def _softmax(scores: Tensor) -> Tensor:
    """Along the keys, causal: the queries are the last of them."""
    new, tokens = scores.shape[-2:]
    if new > 1:
        later = torch.ones(new, tokens, dtype=torch.bool, device=scores.device).triu(tokens - new + 1)
        scores = scores.masked_fill(later, _HIDDEN)
    return torch.softmax(scores, dim=-1)
