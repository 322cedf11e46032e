"""`kvviz.sweep`: the perplexity of a text under eviction policies at many budgets, on the same tokens throughout."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from kvviz.analysis.losses import perplexity
from kvviz.engine.reading import losses, read
from kvviz.errors import Refused
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, ids_of
from kvviz.policies import Full, Policy

Turn = Callable[[], AbstractContextManager]
Report = Callable[[float], None]  # share of the readings that is done

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Point:
    """One reading: the policy with its budget in tokens, how many it dropped, and the perplexity of `scored` tokens."""

    arm: int | None  # which of the policies; None for the full cache
    policy: Policy | Full
    share: float
    perplexity: float
    evicted: int
    stored: int  # tokens a layer held when the last one was predicted
    cache_bytes: int
    scored: int


def sweep(
    lm: LanguageModel,
    text: str | Prompt | Sequence[int],
    policies: Sequence[Policy],
    *,
    shares: Sequence[float] = SHARES,
    turn: Turn = nullcontext,
) -> pd.DataFrame:
    """Perplexity of the second half of `text` under each policy with each share of the text as its budget.

    Columns policy (the Python that makes it), share, budget_tokens, perplexity, evicted (tokens, over layers and KV
    heads), stored_tokens, cache_bytes, scored_tokens; the full cache first, with share 1. The same tokens are scored
    at every budget: those behind the first half, which is also what policies that evict at a prompt's end take for it.
    A budget with no room for the tokens that a policy protects has no row.

    Raises Refused for a text of fewer than 3 tokens, a share that is none, and what `kvviz.evaluate` refuses.
    """
    return points_frame(list(points(lm, text, policies, shares=shares, turn=turn)))


def points(
    lm: LanguageModel,
    text: str | Prompt | Sequence[int],
    policies: Sequence[Policy],
    *,
    shares: Sequence[float] = SHARES,
    progress: Report | None = None,
    turn: Turn = nullcontext,
) -> Iterator[Point]:
    """The readings of `sweep` one after the other, the full cache first, then every policy at the smallest share.

    `progress` gets the share of the work that is done; what it raises ends the work.
    """
    ids = ids_of(lm, text)
    if len(ids) < 3:
        raise Refused(
            "A sweep scores the second half of a text, and {count} tokens have no token there to predict. "
            "Give at least three tokens.",
            count=len(ids),
        )
    planned = [(None, Full(), 1.0), *_sized(policies, sorted(shares), len(ids))]
    layers = lm.config.num_hidden_layers * len(planned)
    for index, (arm, policy, share) in enumerate(planned):
        before = index * lm.config.num_hidden_layers
        report = None if progress is None else lambda done, before=before: progress(min(1.0, (before + done) / layers))
        yield _point(lm, ids, arm, policy, share, report, turn)


def _sized(policies: Sequence[Policy], shares: Sequence[float], tokens: int) -> Iterator[tuple[int, Policy, float]]:
    """Every policy at every share that has room for what it protects."""
    for share in shares:
        if not 0 < share <= 1:
            raise Refused("A budget given as a share must be above 0 and at most 1, not {value}.", value=share)
        budget = max(1, round(share * tokens))
        for arm, policy in enumerate(policies):
            if budget > policy.sinks:
                yield arm, replace(policy, budget=budget), share


def _point(
    lm: LanguageModel,
    ids: Sequence[int],
    arm: int | None,
    policy: Policy | Full,
    share: float,
    progress: Callable[[int], None] | None,
    turn: Turn,
) -> Point:
    half = len(ids) // 2
    reading = read(lm, ids, policy, prompt=half, progress=progress, turn=turn)
    with turn():
        nll: np.ndarray = losses(lm, ids, [reading])[0][0]
    evicted = sum(len(each.position) for each in reading.evicted)
    scored = nll[half:]  # of tokens half + 1 ...: the first that a cut after the first half could touch
    return Point(
        arm, policy, share, perplexity(scored), evicted, int(reading.stored[-2]), reading.cache_bytes, len(scored)
    )


def points_frame(found: Sequence[Point]) -> pd.DataFrame:
    """One row a reading, with the columns of `sweep`."""
    return pd.DataFrame(
        {
            "policy": [str(each.policy) for each in found],
            "share": [each.share for each in found],
            "budget_tokens": pd.array([getattr(each.policy, "budget", None) for each in found], dtype="Int64"),
            "perplexity": [each.perplexity for each in found],
            "evicted": [each.evicted for each in found],
            "stored_tokens": [each.stored for each in found],
            "cache_bytes": [each.cache_bytes for each in found],
            "scored_tokens": [each.scored for each in found],
        }
    )
