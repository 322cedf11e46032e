"""One measuring run of the Attention page, in its own thread."""

from dataclasses import dataclass

import streamlit as st

from kvviz.models.loading import LanguageModel
from kvviz.summary import AttentionSummary, attention
from kvviz.ui.desk import Desk
from kvviz.ui.house import ModelKey
from kvviz.ui.jobs import Job
from kvviz.ui.server import shared_turns
from kvviz.ui.turns import Stopped, Turns


@dataclass(frozen=True)
class Wanted:
    """Everything that decides the measures: two equal ones give the same figures."""

    model: ModelKey
    ids: tuple[int, ...]
    origins: tuple[str, ...]  # of each id: "user", "template", "bos" or "generated"

    @property
    def prompt_tokens(self) -> int:
        """How many ids were there before the model wrote any."""
        return sum(origin != "generated" for origin in self.origins)


class AttentionRun:
    """Measuring one text; `summary` is there when the job has ended well."""

    def __init__(self, wanted: Wanted, lm: LanguageModel, turns: Turns) -> None:
        self.wanted = wanted
        self.lm = lm
        self.layers_done = 0
        self.summary: AttentionSummary | None = None
        self._turns = turns
        self.job = Job(self._work).start()

    @property
    def ahead(self) -> int:
        """How many other runs are served before this one's next layer."""
        return self._turns.place(self)

    def _work(self, job: Job) -> None:
        def note(layers: int) -> None:
            self.layers_done = layers
            if job.stopped:
                raise Stopped

        self.summary = attention(self.lm, self.wanted.ids, progress=note, turn=lambda: self._turns.take(self, job.stop))


@st.cache_resource(scope="session", on_release=Desk.leave, show_spinner=False)
def desk() -> Desk[AttentionRun]:
    """This visitor's desk at the Attention page; cleared away when the tab closes."""
    return Desk()


def begin(wanted: Wanted, lm: LanguageModel) -> AttentionRun:
    """Start measuring, in place of what this visitor measured before."""
    return desk().begin(lambda: AttentionRun(wanted, lm, shared_turns()))
