"""One block of queries walked under a policy: attention, then eviction, query by query."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kvviz.policies import NEVER, Ledger, Policy
from kvviz.records import Evicted

_HIDDEN = np.float32(-np.inf)


class Walk:
    """Some queries, and the slots they can see: positions (kv_heads, slots), the queries' own the last `rows`."""

    def __init__(self, policy: Policy, ledger: Ledger, positions: np.ndarray, rows: int, prompt: int) -> None:
        self.policy, self.ledger, self.positions, self.prompt = policy, ledger, positions, prompt
        self.rows, self.held = rows, positions.shape[1] - rows
        self.start = int(positions[0, self.held])
        self.scheduled = self._schedule()
        self.evicted: list[Evicted] = []
        # scores (heads, 1, width) of one row, whose keys jump so many evicted tokens (kv_heads, width)
        self.rescore: Callable[[int, np.ndarray], Tensor] | None = None
        self._gone = np.full(positions.shape, NEVER, dtype=np.int64)  # row after which a slot is evicted

    def run(self, scores: Tensor, learned: Tensor | None) -> Tensor:
        """Weights float32 (kv_heads, group, rows, slots), 0 where hidden, from scores (heads, rows, slots)."""
        rows, slots = scores.shape[1:]
        grouped = scores.view(self.positions.shape[0], -1, rows, slots)
        sink = None if learned is None else learned.float().view(*grouped.shape[:2], 1, 1)
        if self.scheduled is not None:
            self._follow_schedule()
            return self._softmax(grouped, sink)
        first = self.first_eviction()
        calm = rows if first is None else first  # rows before anything goes are taken together
        needs_weights = self.policy.watches and self.start + 1 <= self._last_decision()
        if first is None and not needs_weights:
            return self._softmax(grouped, sink)
        if not self.policy.watches and self.rescore is None:
            for row in range(calm, rows):
                self._evict(row)
            return self._softmax(grouped, sink)
        weights = torch.empty_like(grouped)
        if calm:
            weights[:, :, :calm] = self._softmax(grouped[:, :, :calm], sink)
            if self.policy.watches:
                seen = weights[:, :, :calm, : self.held + calm].cpu().numpy()
                self.ledger.see(seen, self.held, self.held + 1 + np.arange(calm))
        if calm < rows:
            self._step_by_step(calm, grouped, weights, None if sink is None else sink[:, :, 0].cpu().numpy())
        return weights

    def left(self) -> np.ndarray:
        """Slots that are left after the block, int (kv_heads, left) in rising order."""
        heads = self._gone.shape[0]
        return np.nonzero(self._gone == NEVER)[1].reshape(heads, -1)

    def first_eviction(self) -> int | None:
        """The row after which the first slot goes, None where all stay."""
        for row in range(self.rows):
            if self.held + row + 1 > self.policy.room(self.start + row, self.prompt):
                return row
        return None

    def jumped(self) -> np.ndarray:
        """How many tokens were evicted between each slot and the block, int (kv_heads, slots)."""
        newer = np.maximum(self.held - 1 - np.arange(self.positions.shape[1]), 0)
        return np.maximum(self.start - 1 - self.positions - newer, 0)

    def jumped_by_queries(self) -> np.ndarray:
        """How many tokens were evicted before each query of the block, int (rows,)."""
        now = self.start + np.arange(self.rows)
        return now - self.policy.places(now, self.prompt)

    def _last_decision(self) -> int:
        """Position of the last query whose attention may still count."""
        return self.prompt if self.policy.evicts == "prefill" else NEVER

    def _schedule(self) -> np.ndarray | None:
        """Position after which each slot goes, for a rule that does not look at the text."""
        goes = self.policy.schedule(self.positions)
        if goes is None or self.policy.evicts == "both":
            return goes
        cut = self.prompt - 1
        if self.policy.evicts == "decode":
            return np.where(goes == NEVER, NEVER, np.maximum(goes, cut))
        return np.where(goes <= cut, cut, NEVER)

    def _follow_schedule(self) -> None:
        goes = self.scheduled
        now = (goes >= self.start) & (goes < self.start + self.rows)
        self._gone[now] = goes[now] - self.start
        head, slot = np.nonzero(now)
        if len(head):
            unknown = np.full(len(head), np.nan, dtype=np.float32)
            self.evicted.append(Evicted(-1, goes[head, slot], head, self.positions[head, slot], unknown, unknown))

    def _softmax(self, scores: Tensor, sink: Tensor | None) -> Tensor:
        """Of rows from the block's first on; hidden are later slots and what has gone."""
        rows, slots = scores.shape[2:]
        row = torch.arange(rows, device=scores.device)[:, None]
        visible = torch.arange(slots, device=scores.device) <= row + self.held
        if (self._gone < rows).any():
            gone = torch.from_numpy(self._gone).to(scores.device)
            visible = visible & (gone[:, None, None] >= row)
        scores = scores.masked_fill(~visible, float("-inf"))
        if sink is None:
            return scores.softmax(dim=-1)
        return torch.cat([scores, sink.expand(-1, -1, rows, 1)], dim=-1).softmax(dim=-1)[..., :-1]

    def _step_by_step(self, first: int, scores: Tensor, weights: Tensor, sink: np.ndarray | None) -> None:
        """Rows from `first` on, one after the other: the weights of each decide what the next one can see."""
        numbers = scores.cpu().numpy()
        mixed = weights if weights.device.type == "cpu" else torch.empty_like(weights, device="cpu")
        given = mixed.numpy()
        given[:, :, first:] = 0
        hidden = np.where(self._gone < first, _HIDDEN, np.float32(0))
        stored = np.empty(1, dtype=np.int64)
        for row in range(first, self.rows):
            width = self.held + row + 1
            line = numbers[:, :, row, :width]
            if self.rescore is not None:
                line = self.rescore(row, self._jumps(row, width)).view(*given.shape[:2], width).cpu().numpy()
            line = line + hidden[:, None, :width]
            _normalise(line, sink)
            given[:, :, row, :width] = line
            if self.policy.watches:
                stored[0] = width - np.count_nonzero(hidden[0, :width])
                self.ledger.see(line[:, :, None], self.held + row, stored)
            for head, slot in self._evict(row):
                hidden[head, slot] = _HIDDEN
        if mixed is not weights:
            weights[:, :, first:] = mixed[:, :, first:].to(weights.device)

    def _jumps(self, row: int, width: int) -> np.ndarray:
        """How many tokens were evicted between each slot and the query of `row`, int (kv_heads, width)."""
        there = self._gone[:, :width] >= row
        newer = there[:, ::-1].cumsum(axis=1)[:, ::-1] - there  # slots still there behind each one
        return np.where(there, self.start + row - self.positions[:, :width] - newer, 0)

    def _evict(self, row: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Drop what there is no room for after `row`: (heads, slots) of each token a head loses."""
        width, now = self.held + row + 1, self.start + row
        there = self._gone[:, :width] == NEVER
        over = int(there[0].sum()) - self.policy.room(now, self.prompt)
        if over <= 0:
            return []
        positions = self.positions[:, :width]
        free = there & ~self.policy.protected(positions, now)
        scores = np.where(free, _settled(self.ledger.scores(positions, now)), np.float32(np.inf))
        heads, dropped = np.arange(len(scores)), []
        if over == 1:
            lowest = scores.argmin(axis=1)[:, None]
        else:
            lowest = scores.argsort(axis=1, kind="stable")[:, :over]
        values = np.take_along_axis(scores, lowest, axis=1)
        np.put_along_axis(scores, lowest, np.float32(np.inf), axis=1)
        cut = scores.min(axis=1)
        for column in range(over):
            slot = lowest[:, column]
            self._gone[heads, slot] = row
            self.evicted.append(
                Evicted(-1, np.full(len(heads), now), heads, positions[heads, slot], values[:, column], cut)
            )
            dropped.append((heads, slot))
        return dropped


def _settled(scores: np.ndarray) -> np.ndarray:
    """Scores to 12 bits: what differs by less than 1 in 4,096 is equal and leaves the choice to age.

    Equal tokens get equal scores in theory and differ in their last bits in practice, depending on how many were
    computed together; such bits must not decide.
    """
    return ((scores.view(np.int32) + 0x400) & ~0x7FF).view(np.float32)


def _normalise(line: np.ndarray, sink: np.ndarray | None) -> None:
    """Softmax over the last axis in place; `sink` (kv_heads, group, 1) takes its part of each row."""
    highest = line.max(axis=-1, keepdims=True)
    if sink is not None:
        highest = np.maximum(highest, sink)
    np.subtract(line, highest, out=line)
    np.exp(line, out=line)
    total = line.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - highest)
    np.divide(line, total, out=line)
