"""The work behind a budget sweep: one reading a policy and budget, each kept as soon as it is done."""

from dataclasses import dataclass

import pandas as pd

from kvviz.models.loading import LanguageModel
from kvviz.policies import Policy
from kvviz.sweeping import SHARES, Point, points, points_frame
from kvviz.ui.house import ModelKey
from kvviz.ui.pruning.task import Progress, Turn
from kvviz.ui.turns import Stopped


@dataclass(frozen=True)
class Wanted:
    """Everything that decides a sweep."""

    model: ModelKey
    text: str
    ids: tuple[int, ...]
    arms: tuple[tuple[str, Policy], ...]  # budgets as a share; the sweep sets them


@dataclass(frozen=True, eq=False)
class Swept:
    """The readings so far, the full cache's first; `whole` is False when somebody stopped it."""

    wanted: Wanted
    lm: LanguageModel
    points: list[Point]
    whole: bool

    @property
    def full(self) -> Point:
        """The full cache's."""
        return self.points[0]

    def frame(self) -> pd.DataFrame:
        """arm, and the columns of `kvviz.sweep`: one row a policy and budget, not the full cache."""
        names = [arm for arm, _ in self.wanted.arms]
        rows = sorted(self.points[1:], key=lambda each: (each.arm, each.share))
        frame = points_frame(rows)
        frame.insert(0, "arm", [names[each.arm] for each in rows])
        return frame


def run_sweep(lm: LanguageModel, wanted: Wanted, progress: Progress, turn: Turn) -> Swept:
    """Read the text at every budget; what is finished when somebody stops it is kept, if there is a policy in it."""
    found: list[Point] = []
    policies = [policy for _, policy in wanted.arms]
    try:
        for point in points(lm, wanted.ids, policies, shares=SHARES, progress=progress, turn=turn):
            found.append(point)
    except Stopped:
        if len(found) < 2:
            raise
        return Swept(wanted, lm, found, whole=False)
    return Swept(wanted, lm, found, whole=True)
