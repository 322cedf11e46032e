"""One run of the Cache growth page: what was asked, what the model has done so far, and the cache it filled."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import streamlit as st
from transformers import DynamicCache

from kvviz.engine.cache import new_cache
from kvviz.engine.stream import stream
from kvviz.engine.witness import Witness, witness
from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt
from kvviz.models.tokens import Token, tokens
from kvviz.records import Step
from kvviz.ui.desk import Desk
from kvviz.ui.house import ModelKey
from kvviz.ui.jobs import Job
from kvviz.ui.server import shared_turns
from kvviz.ui.settings import settings
from kvviz.ui.turns import Turns


@dataclass(frozen=True)
class Wanted:
    """Everything that decides a run; two equal ones give the same figures."""

    model: ModelKey
    text: str
    chat: bool = False
    max_new_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    compare: bool = False  # the same again without a cache


class _Text(NamedTuple):
    """The text so far as tokens, and where each came from."""

    tokens: list[Token]
    origins: list[str]


class GrowthRun:
    """A run at work in its own thread; the page reads the lists while they grow."""

    def __init__(self, wanted: Wanted, lm: LanguageModel, prompt: Prompt, turns: Turns) -> None:
        self.wanted = wanted
        self.lm = lm
        self.prompt = prompt
        self.shapes: list[LayerShape] = layer_shapes(lm.config)
        self.steps: list[Step] = []
        self.recomputed: list[Step] = []  # the same text without a cache
        self.cache: DynamicCache = new_cache(lm.config)
        self.witnesses: list[Witness] = []
        self._turns = turns
        self.job = Job(self._work).start()

    @property
    def ahead(self) -> int:
        """How many other runs are served before this one's next step."""
        return self._turns.place(self)

    @property
    def finished_decoding(self) -> bool:
        """True once the run with the cache has made its last step."""
        return bool(self.steps) and self.steps[-1].finish is not None

    def text(self, upto: int | None = None) -> _Text:
        """Prompt and generated tokens, after step number `upto` (all steps when left out)."""
        chosen = [step.token_id for step in self.steps[: None if upto is None else upto + 1]]
        ids = [*self.prompt.ids, *chosen]
        origins = [*self.prompt.origins, *("generated" for _ in chosen)]
        return _Text(tokens(self.lm.tokenizer, ids), origins)

    def _work(self, job: Job) -> None:
        wanted = self.wanted
        run = partial(
            stream,
            self.lm,
            self.prompt,
            wanted.max_new_tokens,
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            seed=wanted.seed,
            turn=lambda: self._turns.take(self, job.stop),
        )
        for step in run(cache=self.cache, prefill_chunk=settings().prefill_chunk):
            self.steps.append(step)
            self._bear_witness(step)
        if wanted.compare:
            self.recomputed.extend(run(use_cache=False))

    def _bear_witness(self, step: Step) -> None:
        """Keep copies of K and V of the first token, the last of the prompt, and the first generated one."""
        positions = {0: (0, step.seen - 1), 1: (step.seen - 1,)}.get(step.index, ())
        self.witnesses += [witness(self.cache, position, step.seen) for position in dict.fromkeys(positions)]


@st.cache_resource(scope="session", on_release=Desk.leave, show_spinner=False)
def desk() -> Desk[GrowthRun]:
    """This visitor's desk at the Cache growth page; cleared away when the tab closes."""
    return Desk()


def begin(wanted: Wanted, lm: LanguageModel, prompt: Prompt) -> GrowthRun:
    """Start a run, in place of this visitor's former one."""
    return desk().begin(lambda: GrowthRun(wanted, lm, prompt, shared_turns()))
