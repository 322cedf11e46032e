"""What a policy threw away from a text: who went when and why, and what was there at any step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from kvviz.geometry.layers import LayerShape
from kvviz.geometry.states import State
from kvviz.policies import NEVER, Full, Policy
from kvviz.records import ROLES, Evicted, Step


@dataclass(frozen=True, eq=False)
class Evictions:
    """The evictions of one policy over a text of `tokens` tokens, in the layers it manages."""

    policy: Policy | Full
    tokens: int
    layers: tuple[int, ...]
    kv_heads: int
    evicted: Sequence[Evicted]

    @cached_property
    def gone(self) -> np.ndarray:
        """After the step at which position each token went, int32 (layers, kv_heads, tokens); NEVER if it stayed."""
        gone = np.full((len(self.layers), self.kv_heads, self.tokens), NEVER, dtype=np.int32)
        mark(gone, self.layers, self.evicted)
        return gone

    @property
    def count(self) -> int:
        """Tokens evicted, over all layers and heads."""
        return sum(len(each.position) for each in self.evicted)

    @cached_property
    def first(self) -> int | None:
        """Position of the step after which the first token went, None when none did."""
        return min((int(each.after.min()) for each in self.evicted), default=None)

    def kept(self, layer: int, kv_head: int, after: int) -> np.ndarray:
        """Positions that are there after the step at position `after`, rising."""
        gone = self.gone[self.layers.index(layer), kv_head, : after + 1]
        return np.nonzero(gone > after)[0]

    def kept_share(self) -> np.ndarray:
        """Share of (layer, kv_head) that hold each token at the end, float (tokens,)."""
        return (self.gone == NEVER).mean(axis=(0, 1))

    def frame(self) -> pd.DataFrame:
        """One row an eviction: layer, kv_head, position, evicted_after (position), score, cut; in order of steps."""
        columns = {
            "layer": np.concatenate([np.full(len(each.position), each.layer) for each in self.evicted] or [_NONE]),
            "kv_head": _joined(self.evicted, "head"),
            "position": _joined(self.evicted, "position"),
            "evicted_after": _joined(self.evicted, "after"),
            "score": _joined(self.evicted, "score", np.float32),
            "cut": _joined(self.evicted, "cut", np.float32),
        }
        return pd.DataFrame(columns).sort_values(["evicted_after", "layer", "kv_head", "position"], ignore_index=True)

    def roles(self, layer: int, kv_head: int, tokens: range | None = None) -> np.ndarray:
        """What each of `tokens` (all) is after each step, uint8 (tokens, steps): an index into `ROLES`.

        A token that stays is a sink among the first, recent while the policy protects it (in a window, and after a
        prompt that alone is cut: always), and heavy where its score alone keeps it.
        """
        tokens = range(self.tokens) if tokens is None else tokens
        steps, positions = np.arange(self.tokens)[None, :], np.array(tokens, dtype=np.int64)[:, None]
        gone = (
            self.gone[self.layers.index(layer), kv_head][positions] if self.layers else np.full(positions.shape, NEVER)
        )
        later, sink, late, heavy, evicted = np.arange(len(ROLES), dtype=np.uint8)
        stays = np.where(self._is_recent(positions, steps), late, heavy)
        stays = np.where(positions < getattr(self.policy, "sinks", 0), sink, stays)
        return np.where(positions > steps, later, np.where(gone > steps, stays, evicted))

    def _is_recent(self, positions: np.ndarray, steps: np.ndarray) -> np.ndarray:
        policy = self.policy
        if isinstance(policy, Full) or policy.schedule(np.arange(1)) is not None:
            return np.ones((1, 1), dtype=bool)
        if policy.evicts == "prefill" and self.first is not None:
            steps = np.minimum(steps, self.first)  # the end of the prompt: nobody has to make room later
        return positions > steps - policy.recent


def mark(gone: np.ndarray, layers: Sequence[int], evicted: Sequence[Evicted]) -> None:
    """Write into `gone`, (layers, kv_heads, tokens), after which step each of `evicted` went."""
    row = {layer: index for index, layer in enumerate(layers)}
    for each in evicted:
        gone[row[each.layer], each.head, each.position] = each.after


def managed(shapes: Sequence[LayerShape]) -> tuple[int, ...]:
    """The layers that policies act on: full attention with nothing but K and V."""
    return tuple(
        each.layer for each in shapes if each.kind == "full" and each.state == State() and not each.index_width
    )


def from_steps(policy: Policy, steps: Sequence[Step], shapes: Sequence[LayerShape]) -> Evictions:
    """The evictions of `kvviz.stream(..., policy=policy)` in these of its steps, from the first on.

    The policy's budget is in tokens; `shapes` are the model's (`kvviz.geometry.layers.layer_shapes`).
    """
    layers = managed(shapes)
    gone = tuple(each for step in steps for each in step.evicted)
    kv_heads = shapes[layers[0]].kv_heads if layers else 0
    return Evictions(policy, steps[-1].seen if steps else 0, layers, kv_heads, gone)


_NONE = np.zeros(0, dtype=np.int64)


def _joined(evicted: Sequence[Evicted], name: str, dtype: type = np.int64) -> np.ndarray:
    return np.concatenate([getattr(each, name) for each in evicted] or [_NONE]).astype(dtype)


def agreement(one: Evictions, other: Evictions, after: int) -> float:
    """Jaccard index of what two policies keep after a step: shared / either, mean over layers and heads."""
    first, second = (each.gone[:, :, : after + 1] > after for each in (one, other))
    return float(((first & second).sum(axis=-1) / (first | second).sum(axis=-1)).mean())
