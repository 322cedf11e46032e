"""What a prefix cache did for each prompt, and the totals: by tokens, as engines count them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from kvviz.locale import N_

# Why nothing was reused; "" when something was.
MISSES = {
    "first": N_("It is the first prompt."),
    "nothing": N_("It begins with another token than every earlier prompt."),
    "block": N_("What it shares is shorter than a block."),
    "last": N_("What it shares ends with its own last token, and that one has to be run."),
    "evicted": N_("What it shares was evicted before."),
    "budget": N_("What it shares was in prompts larger than the budget, which are not stored."),
    "large": N_("It is larger than the budget, so it was served cold and not stored."),
}


@dataclass(frozen=True, slots=True)
class Served:
    """One prompt: how much of it was found, stored and pushed out.

    shared_tokens: longest prefix in common with any earlier prompt, stored or not. reused_tokens: found and not
    computed. saved_bytes: K and V of the reused tokens. held_bytes: what the cache holds afterwards. stored: whether
    the prompt is in the cache afterwards. reason: a key of `MISSES`, "" for a hit. seconds, cold_seconds, logit_gap:
    where a model was at work, cold ones where that was asked for.
    """

    request: int
    prompt_tokens: int
    shared_tokens: int
    reused_tokens: int
    stored_tokens: int
    evicted_tokens: int
    saved_bytes: int
    held_bytes: int
    stored: bool
    reason: str
    seconds: float | None = None
    cold_seconds: float | None = None
    logit_gap: float | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Totals over all prompts. hit_rate is tokens_saved / prompt_tokens, not the share of prompts with a hit."""

    hits: int
    misses: int
    prompt_tokens: int
    tokens_saved: int
    bytes_saved: int
    evicted_tokens: int

    @property
    def hit_rate(self) -> float:
        """Share of all prompt tokens that were not computed, 0 before the first prompt."""
        return self.tokens_saved / self.prompt_tokens if self.prompt_tokens else 0.0


def statistics(served: Sequence[Served]) -> Statistics:
    """The totals of what was served so far."""
    hits = sum(each.reused_tokens > 0 for each in served)
    return Statistics(
        hits=hits,
        misses=len(served) - hits,
        prompt_tokens=sum(each.prompt_tokens for each in served),
        tokens_saved=sum(each.reused_tokens for each in served),
        bytes_saved=sum(each.saved_bytes for each in served),
        evicted_tokens=sum(each.evicted_tokens for each in served),
    )


def served_frame(served: Sequence[Served]) -> pd.DataFrame:
    """One row a prompt. Columns: request, prompt_tokens, shared_tokens, reused_tokens, computed_tokens, stored_tokens,
    evicted_tokens, saved_bytes, held_bytes, stored, reason, milliseconds, cold_milliseconds, logit_gap, and hit_rate:
    by tokens, over all prompts up to this one.
    """
    prompt = pd.Series([each.prompt_tokens for each in served], dtype="int64")
    reused = pd.Series([each.reused_tokens for each in served], dtype="int64")
    return pd.DataFrame(
        {
            "request": [each.request for each in served],
            "prompt_tokens": prompt,
            "shared_tokens": [each.shared_tokens for each in served],
            "reused_tokens": reused,
            "computed_tokens": prompt - reused,
            "stored_tokens": [each.stored_tokens for each in served],
            "evicted_tokens": [each.evicted_tokens for each in served],
            "saved_bytes": [each.saved_bytes for each in served],
            "held_bytes": [each.held_bytes for each in served],
            "stored": [each.stored for each in served],
            "reason": [each.reason for each in served],
            "milliseconds": pd.Series([_milliseconds(each.seconds) for each in served], dtype="float64"),
            "cold_milliseconds": pd.Series([_milliseconds(each.cold_seconds) for each in served], dtype="float64"),
            "logit_gap": pd.Series([each.logit_gap for each in served], dtype="float64"),
            "hit_rate": reused.cumsum() / prompt.cumsum(),
        }
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
