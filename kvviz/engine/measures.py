"""One layer's attention reduced to what is kept of it: a few numbers a head and token, and a small map.

Letters: H heads, T tokens, A[h, q, k] the probabilities. Nothing of size H x T x T is ever held.
"""

import mmap
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from kvviz.engine.scores import AttentionCall, Block, block
from kvviz.records import POOL, LayerMeasures

_ROWS = 64  # query rows at a time: the block of a 4,096 token text stays within a processor's cache


def measure(call: AttentionCall, ids: Tensor) -> LayerMeasures:
    """Measure the attention of a whole text, `ids` (T,), in one call."""
    starts = range(0, len(ids), _ROWS)
    rows = (block(call, start, min(start + _ROWS, len(ids))) for start in starts)
    norms = contribution_norms(call)
    return measure_blocks(rows, call.layer, call.query.shape[1], ids, norms)


def measure_blocks(
    rows: Iterable[Block], layer: int, heads: int, ids: Tensor, contribution: Tensor | None
) -> LayerMeasures:
    """Measure blocks of rows that together are the attention of the text `ids`."""
    sums = _Sums(heads, ids)
    for each in rows:
        sums.add(each)
    return sums.result(layer, contribution)


class _Sums:
    """Running sums and maxima over the blocks of one layer."""

    def __init__(self, heads: int, ids: Tensor) -> None:
        tokens, device = len(ids), ids.device
        self.ids = ids
        self.before = torch.cat([ids.new_full((1,), -1), ids[:-1]])
        self.cell = max(1, -(-tokens // POOL))
        of_keys = ("received", "peak", "peak_probability")
        of_queries = ("self_attention", "entropy", "first", "mean_key", "mass", "sink", "previous")
        of_queries += ("duplicate", "induction")
        self.arrays = {name: torch.zeros(heads, tokens, device=device) for name in of_keys + of_queries}
        self.visible = torch.zeros(tokens, dtype=torch.int64, device=device)  # by how many queries
        self.choices = torch.zeros(tokens, dtype=torch.int64, device=device)  # of each query
        self.pooled = torch.zeros(heads, POOL, POOL, device=device)

    def add(self, rows: Block) -> None:
        """Take in the next rows."""
        weights, allowed = rows.probabilities, rows.allowed
        heads, count, keys = weights.shape
        here = torch.arange(rows.start, rows.start + count, device=weights.device)
        span = slice(rows.start, rows.start + count)
        of = self.arrays
        of["received"][:, :keys] += weights.sum(1)
        self.visible[:keys] += allowed.sum(0)
        self.choices[span] = allowed.sum(1)
        self.last_allowed = allowed[-1]
        of["first"][:, span] = weights[:, :, 0]
        of["entropy"][:, span] = torch.special.entr(weights).sum(-1)
        moments = torch.stack([torch.arange(keys, device=weights.device), torch.ones(keys, device=weights.device)], 1)
        of["mean_key"][:, span], of["mass"][:, span] = torch.matmul(weights, moments.float()).unbind(-1)
        if rows.sink is not None:
            of["sink"][:, span] = rows.sink
        diagonal = weights.gather(2, here.expand(heads, -1)[..., None])
        of["self_attention"][:, span] = diagonal[..., 0]
        before = weights.gather(2, (here - 1).clamp(min=0).expand(heads, -1)[..., None])[..., 0]
        of["previous"][:, span] = before.masked_fill(here == 0, 0)
        earlier = torch.arange(keys, device=weights.device) < here[:, None]
        asked = self.ids[span, None]
        for name, candidates in (("duplicate", self.ids[:keys]), ("induction", self.before[:keys])):
            pattern = ((candidates == asked) & earlier).to(weights.dtype)
            of[name][:, span] = torch.einsum("hqk,qk->hq", weights, pattern)
        self._pool(weights, here)
        later = weights.scatter_(2, here.expand(heads, -1)[..., None], 0.0)  # its own query is not a later one
        self._maximum("peak_probability", later.amax(1))
        self._maximum("peak", later.mul_(self.choices[span].to(weights.dtype)[:, None]).amax(1))

    def _maximum(self, name: str, values: Tensor) -> None:
        known = self.arrays[name][:, : values.shape[1]]
        torch.maximum(known, values, out=known)

    def _pool(self, weights: Tensor, here: Tensor) -> None:
        heads, count, keys = weights.shape
        columns = -(-keys // self.cell)
        padded = torch.nn.functional.pad(weights, (0, columns * self.cell - keys))
        cells = padded.view(heads, count, columns, self.cell).amax(-1)
        index = (here // self.cell)[None, :, None].expand_as(cells)
        self.pooled[:, :, :columns].scatter_reduce_(1, index, cells, reduce="amax")

    def result(self, layer: int, contribution: Tensor | None) -> LayerMeasures:
        """The measures as numpy arrays on the host."""
        of = {name: array.cpu().numpy() for name, array in self.arrays.items()} | {"pooled": self.pooled.cpu().numpy()}
        if contribution is not None:
            of["contribution"] = contribution.cpu().numpy()
        queries = np.arange(len(self.ids), dtype=np.float32)
        mean_key, mass = of.pop("mean_key"), of.pop("mass")
        with np.errstate(invalid="ignore", divide="ignore"):
            of["distance"] = queries - mean_key / mass
        return LayerMeasures(
            layer=layer,
            choices=self.choices.cpu().numpy(),
            visible=self.visible.cpu().numpy(),
            last_visible=self.last_allowed.cpu().numpy(),
            **({"contribution": None} | _apart(of)),
        )


def _apart(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same arrays in memory of their own, mapped for them alone.

    What is kept of a layer would otherwise lie between the large temporary arrays of the next one and keep the
    allocator from joining their room again: 300 MiB at 2,048 tokens of the default model.
    """
    room = np.frombuffer(mmap.mmap(-1, sum(array.nbytes for array in arrays.values())), dtype=np.float32)
    moved, start = {}, 0
    for name, array in arrays.items():
        moved[name] = room[start : start + array.size].reshape(array.shape)
        moved[name][:] = array
        start += array.size
    return moved


def contribution_norms(call: AttentionCall) -> Tensor | None:
    """|v W_O| (H, T): what each head would add to the residual stream if it looked at one key alone.

    Kobayashi et al. 2020 (arXiv 2004.10102), with the model's own output projection; by the Gram matrix of each
    head's part of it, since |v W|^2 = v (W W^T) v^T. None where the layer has no single projection to read.
    """
    weight = _output_weight(call)
    if weight is None:
        return None
    values = call.value[0].float()  # (kv_heads, T, width)
    heads, width = call.query.shape[1], values.shape[-1]
    parts = weight.float().view(heads, width, -1)  # rows of the projection that read one head
    gram = torch.matmul(parts, parts.transpose(1, 2))
    values = values.repeat_interleave(heads // values.shape[0], dim=0)
    return torch.einsum("htw,hwv,htv->ht", values, gram, values).clamp(min=0).sqrt()


def _output_weight(call: AttentionCall) -> Tensor | None:
    """The output projection as (heads x width, hidden), under the names model families give it."""
    for name in ("o_proj", "out_proj", "c_proj", "dense", "wo"):
        layer = getattr(call.module, name, None)
        if layer is None or getattr(layer, "weight", None) is None:
            continue
        # GPT-2's Conv1D keeps its weight as (in, out), a Linear as (out, in)
        weight = layer.weight if type(layer).__name__ == "Conv1D" else layer.weight.T
        if weight.shape[0] == call.query.shape[1] * call.value.shape[-1]:
            return weight
    return None
