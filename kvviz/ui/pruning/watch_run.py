"""One run under a policy: what was asked, what the model has done so far, and who has left the cache."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import streamlit as st

from kvviz.analysis.evictions import Evictions, from_steps
from kvviz.engine.stream import stream
from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt
from kvviz.models.tokens import Token, tokens
from kvviz.policies import Policy
from kvviz.records import Step
from kvviz.ui.desk import Desk
from kvviz.ui.house import ModelKey
from kvviz.ui.jobs import Job
from kvviz.ui.server import shared_turns
from kvviz.ui.settings import settings
from kvviz.ui.turns import Turns

_KEPT = 8  # figures and tables of one run that are not made again


@dataclass(frozen=True)
class Wanted:
    """Everything that decides a run; two equal ones give the same figures. The policy's budget is in tokens."""

    model: ModelKey
    text: str
    policy: Policy
    chat: bool = False
    max_new_tokens: int = 64


class Text(NamedTuple):
    """The text so far as tokens, and where each came from."""

    tokens: list[Token]
    origins: list[str]

    @property
    def labels(self) -> list[str]:
        """One label a token."""
        return [token.label for token in self.tokens]


class WatchRun:
    """A run at work in its own thread; the page reads the list of steps while it grows."""

    def __init__(self, wanted: Wanted, lm: LanguageModel, prompt: Prompt, turns: Turns) -> None:
        self.wanted, self.lm, self.prompt = wanted, lm, prompt
        self.shapes: list[LayerShape] = layer_shapes(lm.config)
        self.steps: list[Step] = []
        self._kept: dict[Hashable, Any] = {}
        self._turns = turns
        self.job = Job(self._work).start()

    @property
    def ahead(self) -> int:
        """How many other runs are served before this one's next step."""
        return self._turns.place(self)

    def text(self, seen: int) -> Text:
        """The first `seen` tokens that the model was fed."""
        written = [step.token_id for step in self.steps]
        origins = [*self.prompt.origins, *("generated" for _ in written)]
        return Text(tokens(self.lm.tokenizer, [*self.prompt.ids, *written])[:seen], origins[:seen])

    def evictions(self, steps: int) -> Evictions:
        """Who had left after so many steps."""
        return self.once(("evictions", steps), lambda: from_steps(self.wanted.policy, self.steps[:steps], self.shapes))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once; the latest few are kept."""
        found = self._kept.pop(key, None)
        self._kept[key] = make() if found is None else found
        while len(self._kept) > _KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        return self._kept[key]

    def _work(self, job: Job) -> None:
        run = partial(stream, self.lm, self.prompt, self.wanted.max_new_tokens, policy=self.wanted.policy)
        for step in run(prefill_chunk=settings().prefill_chunk, turn=lambda: self._turns.take(self, job.stop)):
            self.steps.append(step)


def heads_holding(shapes: list[LayerShape], step: Step, gone: Evictions) -> np.ndarray:
    """How many KV heads of each layer hold each token after `step`, int (layers, seen).

    Layers that the policy leaves alone hold what their window says; those without K and V of their own nothing.
    """
    position, now = np.arange(step.seen), step.seen - 1
    heads = np.array([[shape.kv_heads] for shape in shapes])
    held = position >= step.seen - np.array([[layer.stored] for layer in step.layers])
    holding = np.where(held, heads, 0)
    holding[list(gone.layers)] = (gone.gone[:, :, : step.seen] > now).sum(axis=1)
    return holding


@st.cache_resource(scope="session", on_release=Desk.leave, show_spinner=False)
def desk() -> Desk[WatchRun]:
    """This visitor's desk at this view; cleared away when the tab closes."""
    return Desk()


def begin(wanted: Wanted, lm: LanguageModel, prompt: Prompt) -> WatchRun:
    """Start a run, in place of this visitor's former one."""
    return desk().begin(lambda: WatchRun(wanted, lm, prompt, shared_turns()))
