"""`kvviz.cheat_prefix`: what it does to a prompt when K and V of a token outside the shared prefix are reused."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pandas as pd

from kvviz.analysis.prefixes import equal_pairs, shared_prefix
from kvviz.engine.attention import Turn
from kvviz.engine.cheat import Cheat, cheat
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt
from kvviz.models.tokens import tokens
from kvviz.prefix.pair import Text, as_prompt


def cheat_prefix(
    lm: LanguageModel,
    first: Text,
    second: Text,
    pairs: Sequence[tuple[int, int]] | None = None,
    *,
    chat: bool = False,
    max_new_tokens: int = 24,
    prefill_chunk: int | None = None,
    turn: Turn = nullcontext,
) -> "CheatResult":
    """Run `second` as it is, and with K and V of some of its tokens taken from `first`, and compare what comes next.

    `pairs` are (position in first, position in second). Left out, they are the tokens past the shared prefix that
    stand at the same place in both prompts, or, if there are none, each with its nearest equal in the first.

    Raises Refused as `kvviz.compare_prefix` does, where there is no such token, for places outside the prompts, and
    for models that keep more than K and V of single tokens.
    """
    one, two = (as_prompt(lm, text, chat=chat) for text in (first, second))
    chosen = default_pairs(one.ids, two.ids) if pairs is None else [(int(left), int(right)) for left, right in pairs]
    facts = cheat(lm, one.ids, two.ids, chosen, max_new_tokens=max_new_tokens, chunk=prefill_chunk, turn=turn)
    return CheatResult(lm, one, two, facts)


def default_pairs(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int]]:
    """Equal tokens past the shared prefix: those at the same place, else each with its nearest."""
    pairs = equal_pairs(first, second, shared_prefix(first, second))
    return [pair for pair in pairs if pair[0] == pair[1]] or pairs


@dataclass(frozen=True, eq=False)
class CheatResult:
    """The second prompt true and cheated; `facts` has the numbers."""

    lm: LanguageModel
    first: Prompt
    second: Prompt
    facts: Cheat

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(position in first, position in second) of the tokens whose K and V were taken."""
        return self.facts.pairs

    @property
    def kl(self) -> float:
        """KL divergence of the cheated next-token distribution from the true one, in nats."""
        return self.facts.kl

    @property
    def text(self) -> str:
        """The true greedy continuation."""
        return self.facts.text

    @property
    def text_cheated(self) -> str:
        """The cheated one."""
        return self.facts.text_cheated

    def top(self) -> pd.DataFrame:
        """The five likeliest next tokens of both. Columns: run ("true", "cheated"), rank, token_id, token,
        probability.
        """
        rows = []
        for run, best in (("true", self.facts.top), ("cheated", self.facts.top_cheated)):
            labels = [tokens(self.lm.tokenizer, [number], start=len(self.second.ids))[0].label for number, _ in best]
            rows += [
                (run, rank, number, label, probability)
                for rank, ((number, probability), label) in enumerate(zip(best, labels, strict=True), 1)
            ]
        return pd.DataFrame(rows, columns=["run", "rank", "token_id", "token", "probability"])

    def taken(self) -> pd.DataFrame:
        """The tokens taken. Columns: first_position, second_position, first, second (labels)."""
        rows = [(a, b, self.first.tokens[a].label, self.second.tokens[b].label) for a, b in self.facts.pairs]
        return pd.DataFrame(rows, columns=["first_position", "second_position", "first", "second"])
