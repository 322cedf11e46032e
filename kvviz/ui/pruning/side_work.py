"""The work behind policies side by side: losses of the text, attention lost, and how each policy's model writes on."""

from dataclasses import dataclass

import numpy as np

from kvviz.analysis.compared import first_difference
from kvviz.analysis.evictions import Evictions
from kvviz.analysis.losses import Losses
from kvviz.engine.lost import Gone, lost_attention
from kvviz.engine.stream import stream
from kvviz.evaluation import Evaluation, compare_policies
from kvviz.models.loading import LanguageModel
from kvviz.policies import Full, Policy
from kvviz.ui.pruning.side_arms import FULL
from kvviz.ui.pruning.side_inputs import Wanted
from kvviz.ui.pruning.task import Progress, Turn
from kvviz.ui.settings import settings

# about how long the parts take on two cores, in plain readings of the text; the time left is told by them
_READING, _WEIGHING, _TOKEN = 3.0, 3.0, 0.03


@dataclass(frozen=True, eq=False, slots=True)
class Written:
    """What one policy's model wrote after the text: ids, their text in pieces, and the cache at the end."""

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    stored: int
    cache_bytes: int
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class Compared:
    """Everything of one comparison; the dicts go by arm, `written` has the full cache, too, or nothing at all."""

    wanted: Wanted
    evaluation: Evaluation
    lost: dict[str, np.ndarray]  # (layers, T) as from `lost_attention`
    written: dict[str, Written]

    @property
    def full(self) -> Losses:
        """The full cache's losses."""
        return self.evaluation.losses[0]

    @property
    def losses(self) -> dict[str, Losses]:
        """Of the policies."""
        return dict(zip(dict(self.wanted.arms), self.evaluation.losses[1:], strict=True))

    @property
    def evictions(self) -> dict[str, Evictions]:
        """Of the policies."""
        return dict(zip(dict(self.wanted.arms), self.evaluation.evictions[1:], strict=True))

    def difference(self, arm: str) -> int | None:
        """The first written token in which `arm` differs from the full cache, None where nothing does."""
        return first_difference(self.written[FULL.id].ids, self.written[arm].ids)


def compare(lm: LanguageModel, wanted: Wanted, progress: Progress, turn: Turn) -> Compared:
    """Do it all; `progress` gets the share that is done."""
    arms = dict(wanted.arms)
    plan = _Plan(len(arms), wanted.new, progress)
    evaluation = compare_policies(
        lm, wanted.ids, list(arms.values()), progress=lambda done, of: plan.note("read", done / of), turn=turn
    )
    gone = [Gone(each.layers, each.gone) for each in evaluation.evictions[1:]]
    layers = lm.config.num_hidden_layers
    lost = lost_attention(
        lm, wanted.ids, gone, progress=lambda done: plan.note("weigh", min(1.0, done / layers)), turn=turn
    )
    written: dict[str, Written] = {}
    if wanted.new:
        for index, (arm, policy) in enumerate([(FULL.id, Full()), *wanted.arms]):
            written[arm] = _write(lm, wanted, policy, plan, index / (len(arms) + 1), turn)
    return Compared(wanted, evaluation, dict(zip(arms, lost, strict=True)), written)


class _Plan:
    """Shares of single parts as a share of the whole."""

    def __init__(self, arms: int, new: int, progress: Progress) -> None:
        self.arms, self._progress = arms, progress
        sizes = {"read": 1 + arms * _READING, "weigh": _WEIGHING}
        if new:
            sizes["write"] = (arms + 1) * (_READING + new * _TOKEN)
        whole, begun = sum(sizes.values()), 0.0
        self._spans: dict[str, tuple[float, float]] = {}
        for part, size in sizes.items():
            self._spans[part] = (begun / whole, size / whole)
            begun += size

    def note(self, part: str, share: float) -> None:
        """`share` of this part is done."""
        begun, size = self._spans[part]
        self._progress(begun + share * size)


def _write(lm: LanguageModel, wanted: Wanted, policy: Policy | Full, plan: _Plan, begun: float, turn: Turn) -> Written:
    ids, pieces, peak, last = [], [], 0, None
    for step in stream(lm, wanted.ids, wanted.new, policy=policy, prefill_chunk=settings().prefill_chunk, turn=turn):
        ids.append(step.token_id)
        pieces.append(step.text)
        plan.note("write", begun + len(ids) / wanted.new / (plan.arms + 1))
        last, peak = step, max(peak, step.peak_bytes)
    return Written(tuple(ids), tuple(pieces), last.stored, last.cache_bytes, peak)
