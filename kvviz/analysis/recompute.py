"""With the cache against without it: the same text, the time of each token, the tokens computed."""

from collections.abc import Sequence

import pandas as pd

from kvviz.records import Step


def computed_with_cache(prompt_tokens: int, new_tokens: int) -> int:
    """Token computations with a cache: every token but the last once."""
    return prompt_tokens + new_tokens - 1 if new_tokens else 0


def computed_without_cache(prompt_tokens: int, new_tokens: int) -> int:
    """Token computations without one: the whole text so far, again for each new token.

    Starting from a single token this is n(n + 1) / 2 for n new ones: 5,050 for 100.
    """
    return new_tokens * prompt_tokens + new_tokens * (new_tokens - 1) // 2


def comparison_frame(cached: Sequence[Step], recomputed: Sequence[Step]) -> pd.DataFrame:
    """One row a step both runs have made.

    Columns: step, text_tokens (length of the text the step looked at), with_cache_milliseconds,
    without_cache_milliseconds, with_cache_computed, without_cache_computed (tokens, running totals),
    same_token, margin_logits (the smaller lead of best over second: near 0 is a near tie).
    """
    pairs = list(zip(cached, recomputed, strict=False))
    frame = pd.DataFrame(
        {
            "step": [ours.index for ours, _ in pairs],
            "text_tokens": [len(again.fed) for _, again in pairs],
            "with_cache_milliseconds": [ours.seconds * 1000 for ours, _ in pairs],
            "without_cache_milliseconds": [again.seconds * 1000 for _, again in pairs],
            "with_cache_computed": [ours.computed for ours, _ in pairs],
            "without_cache_computed": [again.computed for _, again in pairs],
            "same_token": [ours.token_id == again.token_id for ours, again in pairs],
            "margin_logits": [min(ours.margin, again.margin) for ours, again in pairs],
        }
    )
    for column in ("with_cache_computed", "without_cache_computed"):
        frame[column] = frame[column].cumsum()
    return frame


def speed_up(frame: pd.DataFrame) -> float | None:
    """Total time without the cache over total time with it, for the same steps; None before the second step."""
    if len(frame) < 2:
        return None
    return float(frame["without_cache_milliseconds"].sum() / frame["with_cache_milliseconds"].sum())


def first_difference(frame: pd.DataFrame) -> int | None:
    """The first step whose tokens differ, or None. After it the two texts are no longer comparable."""
    different = frame.index[~frame["same_token"]]
    return int(frame["step"][different[0]]) if len(different) else None
