"""One block of queries walked under a policy: attention, then eviction, query by query."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kvviz.engine.drops import Drops
from kvviz.policies import NEVER, Ledger, Policy
from kvviz.records import Evicted

_HIDDEN = np.float32(-np.inf)
_LITTLE = 1e-20  # of the exponentials that are left, next to the largest that has gone: too few digits


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
            drops = self._drops()
            for row in range(calm, rows):
                drops.after(row)
            self.evicted += drops.evicted()
            return self._softmax(grouped, sink)
        parts = []
        if calm:
            parts.append(self._softmax(grouped[:, :, :calm], sink))
            if self.policy.watches:
                seen = parts[0][..., : self.held + calm].cpu().numpy()
                self.ledger.see(seen, self.held, self.held + 1 + np.arange(calm))
        if calm < rows:
            parts.append(self._step_by_step(calm, grouped[:, :, calm:], sink))
        return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]

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

    def _step_by_step(self, first: int, scores: Tensor, sink: Tensor | None) -> Tensor:
        """Weights of the rows from `first` on, one after the other: each decides what the next one can see.

        What has gone is taken out of exponentials that were computed for all rows at once.
        """
        numbers, sinks = scores.cpu().numpy(), None if sink is None else sink[:, :, 0].cpu().numpy()
        weights, drops = _exponentials(scores, self.held + first, sink), self._drops()
        learned = None if sink is None else weights[..., -1:]
        heads = np.arange(len(weights))[:, None]
        choices = np.empty(1, dtype=np.int64)
        for row in range(first, self.rows):
            width = self.held + row + 1
            line = weights[:, :, row - first, :width]
            total = np.add.reduce(line, axis=-1, keepdims=True)
            if learned is not None:
                total += learned[:, :, row - first]
            if self.rescore is not None or np.minimum.reduce(total, axis=None) < _LITTLE:
                line[:], own = self._again(row, numbers[:, :, row - first, :width], sinks)
                total = np.add.reduce(line, axis=-1, keepdims=True) + own
            np.divide(line, total, out=line)
            if self.policy.watches:
                choices[0] = width - drops.dropped
                self.ledger.see(line[:, :, None], self.held + row, choices)
            if (slots := drops.after(row)) is not None:
                weights[heads, :, row + 1 - first :, slots] = 0
        self.evicted += drops.evicted()
        return torch.from_numpy(weights[..., : scores.shape[3]]).to(scores.device)

    def _again(self, row: int, line: np.ndarray, sink: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | float]:
        """One row's exponentials from what is still there alone, and that of a learned sink."""
        if self.rescore is not None:
            line = self.rescore(row, self._jumps(row, line.shape[2])).view(line.shape).cpu().numpy()
        line = np.where((self._gone[:, : line.shape[2]] == NEVER)[:, None], line, _HIDDEN)
        highest = line.max(axis=-1, keepdims=True)
        if sink is None:
            return np.exp(line - highest), 0.0
        highest = np.maximum(highest, sink)
        return np.exp(line - highest), np.exp(sink - highest)

    def _jumps(self, row: int, width: int) -> np.ndarray:
        """How many tokens were evicted between each slot and the query of `row`, int (kv_heads, width)."""
        there = self._gone[:, :width] >= row
        newer = there[:, ::-1].cumsum(axis=1)[:, ::-1] - there  # slots still there behind each one
        return np.where(there, self.start + row - self.positions[:, :width] - newer, 0)

    def _drops(self) -> Drops:
        return Drops(self.policy, self.ledger, self.positions, self.rows, self.prompt, self._gone)


def _exponentials(scores: Tensor, held: int, sink: Tensor | None) -> np.ndarray:
    """exp of scores (kv_heads, group, rows, slots) less the largest of each row, 0 of what comes later.

    A learned sink (kv_heads, group, 1, 1) gets a column of its own behind the slots.
    """
    rows, slots = scores.shape[2:]
    hidden = torch.ones(rows, slots, dtype=torch.bool, device=scores.device).triu(held + 1)
    scores = scores.masked_fill(hidden, float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, sink.expand(-1, -1, rows, 1)], dim=-1)
    return (scores - scores.amax(dim=-1, keepdim=True)).exp_().cpu().numpy()
