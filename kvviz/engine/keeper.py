"""Keeps one layer within its policy's budget, for one new token or for thousands at once.

Layer l at token t depends on layer l - 1 up to t and on nothing later, so a whole text can pass through one layer
before the next: the queries, keys and values of all its tokens are there, and the policy is walked over them inside the
attention function. Fed with one token this is a decode step, fed with a text it is many steps at once.
"""

import numpy as np
import torch
from torch import Tensor

from kvviz.engine.rotation import Rotation
from kvviz.engine.scores import AttentionCall, products
from kvviz.engine.walk import Walk
from kvviz.policies import Ledger, Policy
from kvviz.records import Evicted

_ROWS = 128  # queries at a time: what they can see is gathered once for all of them


class Keeper:
    """One layer's ledger, and what became of its tokens."""

    def __init__(self, policy: Policy, layer: int, prompt: int, rotation: Rotation | None) -> None:
        self.policy, self.layer, self.prompt, self.rotation = policy, layer, prompt, rotation
        self.evicted: list[Evicted] = []
        self._ledger: Ledger | None = None

    def attend(self, call: AttentionCall, positions: np.ndarray, norms: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """The attention of a call under the policy, and which of its keys are left afterwards.

        positions (kv_heads, keys) of all keys of the call, the queries' own last; norms (kv_heads, queries) of the
        new keys. Returns (1, queries, heads, value_width) and int (kv_heads, left) in rising order.
        """
        heads, queries = positions.shape[0], call.query.shape[2]
        self._ledger = self._ledger or self.policy.ledger(self.layer, heads)
        before = positions.shape[1] - queries
        slots = np.broadcast_to(np.arange(before), (heads, before))
        mixed = []
        for row in range(0, queries, _ROWS):
            rows = min(_ROWS, queries - row)
            own = np.broadcast_to(np.arange(before + row, before + row + rows), (heads, rows))
            slots = np.concatenate([slots, own], axis=1)
            self._ledger.add(rows, norms[:, row : row + rows])
            there = positions if slots.shape == positions.shape else np.take_along_axis(positions, slots, axis=1)
            part, left = self._block(call, slots, there, row, rows)
            mixed.append(part)
            if left.shape[1] < slots.shape[1]:
                slots = np.take_along_axis(slots, left, axis=1)
                self._ledger.keep(left)
        return torch.cat(mixed, dim=1).transpose(0, 1)[None].to(call.value.dtype), slots

    def _block(
        self, call: AttentionCall, slots: np.ndarray, positions: np.ndarray, row: int, rows: int
    ) -> tuple[Tensor, np.ndarray]:
        """(heads, rows, value_width) of some queries over `slots`, and the slots that are left."""
        key, value = gathered(call.key[0], slots), gathered(call.value[0], slots)
        query = call.query[0, :, row : row + rows]
        walk = Walk(self.policy, self._ledger, positions, rows, self.prompt)
        if self.policy.positions == "original":
            scores = products(query, key, call.options)
        elif self.policy.positions == "naive":
            scores = products(*self._naive(query, key, positions), call.options)
        else:
            scores = self._relative(walk, query, key, call.options)
        weights = walk.run(scores, call.options.get("s_aux"))
        self.evicted.extend(gone._replace(layer=self.layer) for gone in walk.evicted)
        grouped = weights.to(value.device).view(value.shape[0], -1, weights.shape[-1])
        return torch.matmul(grouped, value.float()).view(query.shape[0], rows, -1), walk.left()

    def _naive(self, query: Tensor, key: Tensor, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Both at the places they were given when they came."""
        by = torch.from_numpy(self.policy.places(positions, self.prompt) - positions).to(key.device)
        return self.rotation.turn(query, by[:1, -query.shape[1] :], self.layer), self.rotation.turn(key, by, self.layer)

    def _relative(self, walk: Walk, query: Tensor, key: Tensor, options: dict) -> Tensor:
        """Scores with every key as near as it stands in the cache: what was evicted between it and the query is jumped.

        A fixed rule evicts behind the sinks alone: two products do, with the query where it is and with the query moved
        up to the sinks. Otherwise, where nothing is evicted within the block the jumps are those at its start, and
        where something is the keys are turned for every query.
        """
        if walk.scheduled is not None:
            scores, sinks = products(query, key, options), self.policy.sinks
            if sinks:
                back = torch.from_numpy(-walk.jumped_by_queries())[None].to(key.device)
                moved = self.rotation.turn(query, back, self.layer)
                scores[:, :, :sinks] = products(moved, key[:, :sinks], options)
            return scores
        jumped = torch.from_numpy(walk.jumped()).to(key.device)
        scores = products(query, self.rotation.turn(key, jumped, self.layer) if jumped.any() else key, options)
        if walk.first_eviction() is None:
            return scores
        walk.rescore = lambda row, jumps: products(
            query[:, row : row + 1],
            self.rotation.turn(key[:, : jumps.shape[1]], torch.from_numpy(jumps).to(key.device), self.layer),
            options,
        )
        return scores


def gathered(vectors: Tensor, slots: np.ndarray) -> Tensor:
    """(key_heads, keys, width) at (kv_heads, slots) in rising order; the vectors themselves where that is all of them.

    Expanded latents have more heads than the cache has. Whole rows are copied, which `Tensor.gather` does not.
    """
    heads, keys, width = vectors.shape
    if slots.shape[1] == keys:
        return vectors
    rows = np.repeat(slots, heads // len(slots), axis=0) + keys * np.arange(heads)[:, None]
    picked = vectors.reshape(-1, width).index_select(0, torch.from_numpy(rows.ravel()).to(vectors.device))
    return picked.view(heads, -1, width)
