"""`kvviz.probe_facts`: facts hidden in a long text, and whether a model under a policy still knows them at its end."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np
import pandas as pd

from kvviz.analysis.evictions import Evictions
from kvviz.analysis.facts import FACTS, Fact, placements
from kvviz.engine.asking import Held
from kvviz.engine.reading import Turn
from kvviz.errors import Refused
from kvviz.factprobe.hiding import SHIFT, Hidden, answer_id, hide, question_ids, usable
from kvviz.models.loading import LanguageModel
from kvviz.policies import Full, Policy
from kvviz.texts import alice


def probe_facts(
    lm: LanguageModel,
    policies: Sequence[Policy | Full],
    *,
    tokens: int = 512,
    rounds: int = 4,
    depths: Sequence[int] = (10, 30, 50, 70, 90),
    facts: Sequence[Fact] = FACTS,
    filler: str | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    turn: Turn = nullcontext,
) -> pd.DataFrame:
    """Put facts at `depths` (percent) of `rounds` texts of about `tokens` tokens and ask for each at the end.

    One row a policy (the full cache first), text and fact: policy, round, fact, depth_percent, position (of the
    answer's token), text_tokens, answer, said (the likeliest candidate), right, probability (of the answer among the
    candidates), candidates (how many), held_share (of layers x KV heads that still hold the answer's token when the
    answer is due), fact_held_share (the same, mean over the fact's tokens), stored (tokens per layer and head then),
    evicted (over layers and heads).

    The question comes after the text and is not known when a policy cuts. Answers are single tokens, so one reading of
    a question scores all of them. Budgets given as a share refer to the text. `filler` is a book by default.

    Raises Refused for a tokenizer that leaves fewer facts than depths with single-token answers, for a text with no
    room for the facts, and for policies that this model cannot have.
    """
    known = [fact for fact in (usable(lm, fact) for fact in facts) if fact is not None]
    if len(known) < len(depths):
        raise Refused(
            "{count} of the facts have answers that are single tokens for {name}, and {depths} are needed. "
            "Choose another model or fewer depths.",
            count=len(known),
            name=lm.title,
            depths=len(depths),
        )
    arms = list({str(arm): arm for arm in (Full(), *policies)}.values())
    texts = [
        hide(lm, places, alice() if filler is None else filler, tokens, number * SHIFT)
        for number, places in enumerate(placements(known, depths, rounds, seed))
    ]
    rows, whole = [], len(texts) * len(arms)
    for number, hidden in enumerate(texts):
        for index, arm in enumerate(arms):

            def note(share: float, done: int = number * len(arms) + index) -> None:
                if progress is not None:
                    progress((done + share) / whole)

            rows += _asked(lm, hidden, arm, number, note, turn)
    frame = pd.DataFrame(rows)
    order = {str(arm): index for index, arm in enumerate(arms)}
    return frame.sort_values("policy", key=lambda column: column.map(order), kind="stable", ignore_index=True)


def _asked(
    lm: LanguageModel, hidden: Hidden, arm: Policy | Full, number: int, note: Callable[[float], None], turn: Turn
) -> list[dict]:
    """Read one text under one policy and ask for all its facts; a reading counts as much as its questions together."""
    held = Held(lm, hidden.ids, arm, progress=lambda share: note(share / 2), turn=turn)
    rows, count = [], len(hidden.places)
    for index, (place, span, answer) in enumerate(zip(hidden.places, hidden.spans, hidden.answers, strict=True)):
        question = question_ids(lm, place.fact)
        logs, evicted = held.ask(question)
        ids = [answer_id(lm, place.fact, candidate) for candidate in place.fact.candidates]
        shares = np.exp(logs[ids] - np.logaddexp.reduce(logs[ids]))
        likeliest = place.fact.candidates[int(shares.argmax())]
        total = len(hidden.ids) + len(question)
        rows.append(
            {
                "policy": str(arm),
                "round": number,
                "fact": place.fact.name,
                "depth_percent": place.depth,
                "position": answer,
                "text_tokens": len(hidden.ids),
                "answer": place.answer,
                "said": likeliest,
                "right": likeliest == place.answer,
                "probability": float(shares[place.fact.candidates.index(place.answer)]),
                "candidates": len(ids),
                **_holding(Evictions(arm, total, held.managed, held.kv_heads, evicted), span, answer),
            }
        )
        note(0.5 + (index + 1) / count / 2)
    return rows


def _holding(evictions: Evictions, span: range, answer: int) -> dict[str, float]:
    """What is there for the last token of the question, from which the answer is predicted."""
    last = evictions.tokens - 1
    if not evictions.layers:
        return {"held_share": 1.0, "fact_held_share": 1.0, "stored": float(evictions.tokens), "evicted": 0}
    there = evictions.gone >= last  # what goes after the last step was still seen by it
    return {
        "held_share": float(there[:, :, answer].mean()),
        "fact_held_share": float(there[:, :, span.start : span.stop].mean()),
        "stored": float(there.sum(axis=-1).mean()),
        "evicted": int((~there).sum()),
    }
