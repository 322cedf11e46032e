"""The work behind the fact probe, and what its result is called."""

from dataclasses import dataclass

import pandas as pd

from kvviz.factprobe.probe import probe_facts
from kvviz.locale import Translate
from kvviz.models.loading import LanguageModel
from kvviz.ui.pruning.facts_inputs import DEPTHS, Wanted
from kvviz.ui.pruning.side_arms import ARMS, FULL
from kvviz.ui.pruning.task import Progress, Turn


@dataclass(frozen=True, eq=False)
class Probed:
    """The answers of one probe, a row a policy, text and fact."""

    wanted: Wanted
    lm: LanguageModel
    answers: pd.DataFrame

    @property
    def arms(self) -> dict[str, str]:
        """Arm by the Python of its policy, the full cache first."""
        return {"Full()": FULL.id} | {str(policy): arm for arm, policy in self.wanted.arms}

    def names(self, t: Translate) -> dict[str, str]:
        """The policies for people, by the Python that makes them."""
        return {policy: t(ARMS[arm].title if arm in ARMS else FULL.title) for policy, arm in self.arms.items()}


def probe(lm: LanguageModel, wanted: Wanted, progress: Progress, turn: Turn) -> Probed:
    """Ask everything; `progress` gets the share that is done."""
    policies = [policy for _, policy in wanted.arms]
    answers = probe_facts(
        lm, policies, tokens=wanted.tokens, rounds=wanted.rounds, depths=DEPTHS, progress=progress, turn=turn
    )
    return Probed(wanted, lm, answers)
