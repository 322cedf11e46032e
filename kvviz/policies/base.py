"""What every eviction policy is: settings, and for each layer a ledger that scores the tokens it holds.

Words: a slot is one cached token of one KV head, slots stand in order of position. A policy never touches tensors of
the model; the cache hands its ledgers attention and key norms as numpy arrays and drops the slots with the lowest
scores outside the protected ones, older ones first where scores are equal. It does so after the attention of a step,
so a budget of B means: B tokens stored between steps, the newest included, and a query sees those and itself.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from kvviz.errors import Refused
from kvviz.locale import N_
from kvviz.policies.settings import check, setting

NEVER = np.iinfo(np.int32).max  # "evicted after this position" of a token that stays

EVICTS = {
    "both": N_("at every step, from the first token of the prompt on"),
    "decode": N_("the prompt is read in full, cut once at its end, then at every step"),
    "prefill": N_("once, at the end of the prompt; later tokens are all kept"),
}

POSITIONS = {
    "original": N_("original: each token keeps the position it was read at"),
    "relative": N_("cache-relative: tokens are renumbered by their place in the cache"),
    "naive": N_("naive: a new token gets the cache's length as its position, held keys keep theirs (a known mistake)"),
}

POOLING = {
    "mean": N_("mean over the query heads that share a key"),
    "max": N_("maximum over the query heads that share a key"),
    "sum": N_("sum over the query heads that share a key"),
}


class Ledger:
    """What a policy remembers of one layer; arrays are (kv_heads, slots).

    `scores` is what a policy must give; `add`, `see` and `keep` are extended where it remembers something.
    """

    def __init__(self, policy: "Policy", layer: int, heads: int) -> None:
        self.policy, self.layer, self.heads = policy, layer, heads

    def add(self, count: int, key_norms: np.ndarray) -> None:
        """`count` new slots at the end; key_norms (kv_heads, count) of their keys."""

    def see(self, weights: np.ndarray, own: int, choices: np.ndarray) -> None:
        """The attention of new queries, float32 (kv_heads, group, queries, slots), 0 where a query may not look.

        Query i stands at slot `own` + i, sees none behind it, and had `choices[i]` tokens to look at.
        """

    def scores(self, positions: np.ndarray, now: int) -> np.ndarray:
        """How much each slot is worth, float32 (kv_heads, slots), after the step at position `now`."""
        raise NotImplementedError

    def keep(self, slots: np.ndarray) -> None:
        """Only these slots, int (kv_heads, kept) in rising order, are left."""


@dataclass(frozen=True)
class Policy:
    """Settings common to all policies that evict; immutable, and their `str` is the Python that makes them."""

    budget: int | float = setting(
        0.2,
        N_("Budget"),
        N_("Tokens kept per layer and KV head, the newest included: a whole number, or a share of the text (0.2)."),
        low=0,
        high=1_000_000_000,
    )
    evicts: str = setting(
        "both", N_("When it evicts"), N_("While the prompt is read, after it, or both."), choices=EVICTS
    )
    positions: str = setting(
        "original", N_("Positions"), N_("Which position a rotary model gives to what is kept."), choices=POSITIONS
    )

    id: ClassVar[str]
    title: ClassVar[str]  # for people, marked
    rule: ClassVar[str]  # what is implemented, in one sentence, marked
    source: ClassVar[str] = ""  # paper
    watches: ClassVar[bool] = False  # whether its ledgers need the attention weights
    sinks: ClassVar[int] = 0  # first tokens that are never evicted; a field where it can be chosen

    def __post_init__(self) -> None:
        """Raise Refused for settings that are impossible whatever the text."""
        check(self)
        if isinstance(self.budget, float) and not 0 < self.budget <= 1:
            raise Refused("A budget given as a share must be above 0 and at most 1, not {value}.", value=self.budget)
        if self.budget < 1 and isinstance(self.budget, int):
            raise Refused("The budget must be at least 1 token, not {value}.", value=self.budget)
        if isinstance(self.budget, int):
            self._check_room()

    def sized(self, tokens: int) -> Self:
        """The same policy with its budget in tokens, for a text of `tokens` tokens.

        Raises Refused where the share is too small for the tokens that are protected.
        """
        if isinstance(self.budget, int):
            return self
        return dataclasses.replace(self, budget=max(1, round(self.budget * tokens)))

    def _check_room(self) -> None:
        if self.budget < self.sinks + 1:
            raise Refused(
                "A budget of {budget} tokens has no room for {sinks} first tokens and the newest one. "
                "Choose at least {least} tokens.",
                budget=self.budget,
                sinks=self.sinks,
                least=self.sinks + 1,
            )

    @property
    def recent(self) -> int:
        """Newest tokens that are never evicted (budget in tokens)."""
        return 1

    def protected(self, positions: np.ndarray, now: int) -> np.ndarray:
        """Which slots may not be evicted after the step at position `now`, bool like `positions`."""
        return (positions < self.sinks) | (positions > now - self.recent)

    def schedule(self, positions: np.ndarray) -> np.ndarray | None:
        """For a policy whose rule does not look at the text: after which position each token goes, NEVER if it stays.

        Under eviction at every step; None where it depends on the text.
        """
        return None

    def ledger(self, layer: int, heads: int) -> Ledger:
        """An empty ledger for one layer with `heads` KV heads."""
        raise NotImplementedError

    def room(self, now: int, prompt: int) -> int:
        """Tokens that may be stored after the step at position `now`; the prompt has `prompt` tokens."""
        if self.evicts == "both":
            return self.budget
        if now < prompt - 1:
            return NEVER
        return self.budget if self.evicts == "decode" else self.budget + now - (prompt - 1)

    def places(self, positions: np.ndarray, prompt: int) -> np.ndarray:
        """Where each token stood in the cache when it came: the tokens stored before it."""
        if self.evicts == "both":
            return np.minimum(positions, self.budget)
        later = self.budget + (positions - prompt) * (self.evicts == "prefill")
        return np.where(positions < prompt, positions, np.minimum(positions, later))

    def __str__(self) -> str:
        """Python that makes this policy: class and what differs from the defaults, the budget always."""
        said = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in dataclasses.fields(self)
            if each.name == "budget" or getattr(self, each.name) != each.default
        ]
        return f"{type(self).__name__}({', '.join(said)})"


def pooled(weights: np.ndarray, how: str) -> np.ndarray:
    """(kv_heads, group, ...) -> (kv_heads, ...)."""
    if weights.shape[1] == 1:
        return weights[:, 0]
    if how == "max":
        return weights.max(axis=1)
    return weights.sum(axis=1) / (weights.shape[1] if how == "mean" else 1)


def widened(array: np.ndarray, count: int) -> np.ndarray:
    """`array` (..., slots) with `count` zeros behind it."""
    return np.concatenate([array, np.zeros((*array.shape[:-1], count), dtype=array.dtype)], axis=-1)
