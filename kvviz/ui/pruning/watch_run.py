"""One run under a policy: what was asked, what the model has done so far, and who has left the cache."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from kvviz.analysis.evictions import Evictions, from_steps, managed, mark
from kvviz.analysis.formula import predicted_frame
from kvviz.analysis.timeline import timeline
from kvviz.engine.stream import stream
from kvviz.geometry.layers import LayerShape, layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt
from kvviz.models.tokens import Token, tokens
from kvviz.policies import NEVER, Policy
from kvviz.records import Step, Timeline
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
    """A run at work in its own thread; the page reads its steps while they are made.

    gone, int32 (layers, kv_heads, tokens): after the step at which position each token left each of `layers`, those
    that the policy acts on.
    """

    def __init__(self, wanted: Wanted, lm: LanguageModel, prompt: Prompt, turns: Turns) -> None:
        self.wanted, self.lm, self.prompt = wanted, lm, prompt
        self.shapes: list[LayerShape] = layer_shapes(lm.config)
        self.layers = managed(self.shapes)
        heads = self.shapes[self.layers[0]].kv_heads if self.layers else 0
        self.gone = np.full((len(self.layers), heads, len(prompt.ids) + wanted.max_new_tokens), NEVER, dtype=np.int32)
        self.steps: list[Step] = []
        self._kept: dict[Hashable, Any] = {}
        self._turns = turns
        self.job = Job(self._work).start()

    @property
    def ahead(self) -> int:
        """How many other runs are served before this one's next step."""
        return self._turns.place(self)

    @property
    def heads(self) -> int:
        """The KV heads of a layer, the most of all layers."""
        return max(shape.kv_heads for shape in self.shapes)

    def text(self, steps: int) -> Text:
        """Prompt and what so many steps wrote; the last token has not been read yet."""
        written = [step.token_id for step in self.steps[:steps]]
        origins = [*self.prompt.origins, *("generated" for _ in written)]
        return Text(tokens(self.lm.tokenizer, [*self.prompt.ids, *written]), origins)

    def holding(self, step: Step) -> np.ndarray:
        """How many KV heads of each layer hold each token after `step`, int (layers, seen).

        Layers that the policy leaves alone hold their last tokens, those without K and V of their own none.
        """
        heads = np.array([[shape.kv_heads] for shape in self.shapes])
        held = np.arange(step.seen) >= step.seen - np.array([[layer.stored] for layer in step.layers])
        holding = np.where(held, heads, 0)
        holding[list(self.layers)] = self._there(step).sum(axis=1)
        return holding

    def held_share(self, step: Step) -> np.ndarray:
        """Share of the layers' KV heads that hold each token after `step`, float (seen,)."""
        return self._there(step).mean(axis=(0, 1))

    def evictions(self) -> Evictions:
        """Who left in all the steps so far, and why."""
        steps = list(self.steps)
        return self.once(("evictions", len(steps)), lambda: from_steps(self.wanted.policy, steps, self.shapes))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once; the latest few are kept."""
        found = self._kept.pop(key, None)
        self._kept[key] = found = make() if found is None else found
        while len(self._kept) > _KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        return found

    def _there(self, step: Step) -> np.ndarray:
        return self.gone[:, :, : step.seen] > step.seen - 1

    def _work(self, job: Job) -> None:
        run = partial(stream, self.lm, self.prompt, self.wanted.max_new_tokens, policy=self.wanted.policy)
        for step in run(prefill_chunk=settings().prefill_chunk, turn=lambda: self._turns.take(self, job.stop)):
            mark(self.gone, self.layers, step.evicted)  # first: the page must not see a step without its evictions
            self.steps.append(step)


def life(run: WatchRun, layer: int, head: int, tokens: range) -> Timeline:
    """What became of `tokens` in one head, made once."""
    evictions = run.evictions()
    key = ("life", evictions.tokens, layer, head, tokens)
    return run.once(key, lambda: timeline(evictions, layer, head, tokens))


def full_frame(run: WatchRun, upto: int) -> pd.DataFrame:
    """What a full cache holds of 0 to `upto` tokens: seen_tokens, bytes."""
    predicted = predicted_frame(run.shapes, run.lm.dtype.itemsize, upto)
    return predicted.groupby("seen_tokens", as_index=False)["bytes"].sum()


@st.cache_resource(scope="session", on_release=Desk.leave, show_spinner=False)
def desk() -> Desk[WatchRun]:
    """This visitor's desk at this view; cleared away when the tab closes."""
    return Desk()


def begin(wanted: Wanted, lm: LanguageModel, prompt: Prompt) -> WatchRun:
    """Start a run, in place of this visitor's former one."""
    return desk().begin(lambda: WatchRun(wanted, lm, prompt, shared_turns()))
