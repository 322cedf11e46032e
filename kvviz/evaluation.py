"""`kvviz.evaluate`: the loss of every token of a given text under eviction policies, beside the full cache."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from kvviz.analysis.evictions import Evictions
from kvviz.analysis.losses import Losses, losses_frame, perplexities_frame
from kvviz.engine.reading import Reading, Turn, losses, read
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, ids_of
from kvviz.models.tokens import tokens
from kvviz.policies import Full, Policy

Report = Callable[[int, int], None]  # (attention layers done, of how many)


def evaluate(
    lm: LanguageModel,
    text: str | Prompt | Sequence[int],
    policies: Sequence[Policy | Full],
    *,
    prompt: int | None = None,
    past_context: bool = False,
    turn: Turn = nullcontext,
) -> pd.DataFrame:
    """Loss of each token of `text` given those before it, under each policy and with the full cache.

    Columns policy (the Python that makes it), position, token_id, token, nll and kl (nats; kl of the full cache's
    distribution against the policy's), stored (tokens a layer held when the token was predicted). Tokens 1 ... T - 1
    are scored once each, on the given text; a text of one token has no row. Budgets given as a share refer to the
    text. `prompt` is how many of the first tokens count as the prompt, for policies that evict at its end (half).

    `past_context` lets a text be longer than the model was made for, which rotary models can read and others not.

    Raises Refused for an empty text, a text past the model's context, and policies that this model cannot have.
    """
    return compare_policies(lm, text, policies, prompt=prompt, past_context=past_context, turn=turn).frame()


def compare_policies(
    lm: LanguageModel,
    text: str | Prompt | Sequence[int],
    policies: Sequence[Policy | Full],
    *,
    prompt: int | None = None,
    past_context: bool = False,
    progress: Report | None = None,
    turn: Turn = nullcontext,
) -> "Evaluation":
    """What `evaluate` does, with everything else that was seen on the way: evictions, bytes, perplexities.

    `progress` gets (attention layers done, of how many); what it raises ends the work. `turn` as in `kvviz.stream`.
    """
    ids = ids_of(lm, text, past_context=past_context and hasattr(lm.model.base_model, "rotary_emb"))
    if prompt is not None and not 0 < prompt <= len(ids):
        raise Refused("The prompt must have between 1 and {count} tokens, not {value}.", count=len(ids), value=prompt)
    arms = list({str(arm): arm for arm in (Full(), *policies)}.values())  # 1 and 1.0 are equal, as budgets they are not
    layers, readings = lm.config.num_hidden_layers, []
    for arm in arms:
        before = len(readings) * layers
        report = None if progress is None else lambda done, before=before: progress(before + done, layers * len(arms))
        readings.append(read(lm, ids, arm, prompt=prompt, progress=report, turn=turn))
    with turn():
        nll, kl = losses(lm, ids, readings)
    facts = [_facts(str(arm), reading, *rows) for arm, reading, *rows in zip(arms, readings, nll, kl, strict=True)]
    return Evaluation(lm, ids, tuple(arms), facts, [_evictions(reading, len(ids)) for reading in readings])


def _evictions(reading: Reading, count: int) -> Evictions:
    return Evictions(reading.policy, count, reading.managed, reading.kv_heads, reading.evicted)


def _facts(name: str, reading: Reading, nll: np.ndarray, kl: np.ndarray) -> Losses:
    gone = _evictions(reading, len(nll) + 1)
    return Losses(
        policy=name,
        nll=nll,
        kl=kl,
        stored=reading.stored[:-1],
        first_eviction=gone.first,
        evicted=gone.count,
        cache_bytes=reading.cache_bytes,
        peak_bytes=reading.peak_bytes,
    )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One text under several policies, the full cache first; `losses` and `evictions` in the order of `policies`."""

    lm: LanguageModel
    ids: tuple[int, ...]
    policies: tuple[Policy | Full, ...]
    losses: list[Losses]
    evictions: list[Evictions]

    @cached_property
    def labels(self) -> list[str]:
        """One label a token."""
        return [token.label for token in tokens(self.lm.tokenizer, self.ids)]

    def frame(self) -> pd.DataFrame:
        """The losses of `evaluate`."""
        return losses_frame(self.losses, self.ids, self.labels)

    def perplexities(self) -> pd.DataFrame:
        """One row a policy: perplexity (all, before and after its first eviction), KL, what was evicted, bytes."""
        return perplexities_frame(self.losses)
