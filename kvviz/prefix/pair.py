"""`kvviz.compare_prefix`: what the second of two prompts can take from the first one's cache, and what it saves."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pandas as pd

from kvviz.analysis.prefixes import equal_pairs, in_blocks, reusable, shared_prefix
from kvviz.engine.attention import Turn
from kvviz.engine.reuse import Reuse, reuse
from kvviz.geometry.layers import layer_shapes
from kvviz.geometry.memory import bytes_per_token
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import Prompt, encode, ids_of
from kvviz.models.tokens import Token, plain_text, tokens

Text = str | Prompt | Sequence[int]


def compare_prefix(
    lm: LanguageModel,
    first: Text,
    second: Text,
    *,
    chat: bool = False,
    prefill_chunk: int | None = None,
    turn: Turn = nullcontext,
) -> "PrefixReuse":
    """Prefill `first`, then `second` from their common prefix, then `second` from nothing, and compare.

    Each is a text, an encoded prompt or ids, tokenised whole. The cache is kept as it was where the prompts part, so
    that sliding layers hold the right window and recurrent ones the right state; the second prompt runs on a copy.
    `turn` and `prefill_chunk` as in `kvviz.stream`; models with a recurrent state go on token by token.

    Raises Refused for an empty prompt, one past the model's context, or a model that gives no cache away.
    """
    one, two = (as_prompt(lm, text, chat=chat) for text in (first, second))
    shared = shared_prefix(one.ids, two.ids)
    reused = reusable(shared, len(two.ids))
    pairs = equal_pairs(one.ids, two.ids, shared)
    facts = reuse(lm, one.ids, two.ids, reused, pairs, chunk=prefill_chunk, turn=turn)
    each = bytes_per_token(layer_shapes(lm.config), lm.dtype.itemsize)
    return PrefixReuse(one, two, shared, reused, each, tuple(pairs), facts)


def as_prompt(lm: LanguageModel, text: Text, *, chat: bool = False) -> Prompt:
    """The prompt for a text, a prompt as it is, or one made of ids: their text, every origin "user".

    Raises Refused as `encode` does, and for ids the model has not.
    """
    if isinstance(text, str):
        text = encode(lm, text, chat=chat)
    ids = ids_of(lm, text)
    if isinstance(text, Prompt):
        return text
    found = tokens(lm.tokenizer, ids)
    return Prompt(plain_text(found), ids, tuple(found), ("user",) * len(ids))


@dataclass(frozen=True, eq=False)
class PrefixReuse:
    """Two prompts, what they share and what the second saves by it.

    shared: ids in common from the first on; reused: those not computed again, at most all of the second but its
    last. bytes_per_token: K and V of one token in all layers. facts: measured times, logits and distances.
    """

    first: Prompt
    second: Prompt
    shared: int
    reused: int
    bytes_per_token: int
    pairs: tuple[tuple[int, int], ...]
    facts: Reuse

    @property
    def computed(self) -> int:
        """Tokens of the second prompt that were computed."""
        return len(self.second.ids) - self.reused

    @property
    def shared_characters(self) -> int:
        """Characters in common from the first on, of the texts as typed: not what can be reused."""
        return shared_prefix(self.first.text, self.second.text)

    @property
    def shared_origins(self) -> dict[str, int]:
        """How many of the shared tokens are the person's own ("user"), of the "template", or a "bos"."""
        origins = self.second.origins[: self.shared]
        return {origin: origins.count(origin) for origin in ("bos", "template", "user")}

    @property
    def difference(self) -> tuple[Token | None, Token | None]:
        """The first tokens that differ, of each prompt; None where it has ended."""
        return tuple(
            prompt.tokens[self.shared] if self.shared < len(prompt.tokens) else None
            for prompt in (self.first, self.second)
        )

    @property
    def reused_bytes(self) -> int:
        """Bytes that were copied: all tensors of the cache at the end of the reused tokens."""
        return self.facts.reused_bytes

    @property
    def saved_bytes(self) -> int:
        """K and V that did not have to be computed; more than `reused_bytes` where windows had forgotten some."""
        return self.reused * self.bytes_per_token

    @property
    def logit_gap(self) -> float:
        """Largest difference of a logit between warm and cold, over the last `facts.compared` tokens."""
        return self.facts.logit_gap

    @property
    def agrees(self) -> bool:
        """Whether the gap is no more than rounding in this dtype (`facts.tolerance`)."""
        return self.facts.logit_gap <= self.facts.tolerance

    @property
    def same_top(self) -> bool:
        """Whether warm and cold choose the same next token; near ties may fall either way in half precision.

        False where the model's logits are no numbers (Gemma 3 in float16).
        """
        return self.facts.top == self.facts.top_cold and self.facts.logit_gap == self.facts.logit_gap

    @property
    def cold_seconds(self) -> float:
        """Prefill of the whole second prompt."""
        return self.facts.cold_seconds

    @property
    def warm_seconds(self) -> float:
        """Copying the cache and prefill of the rest."""
        return self.facts.warm_seconds

    def frame(self) -> pd.DataFrame:
        """The prompts side by side, one row a position. Columns: position, first, second (labels, None past the end),
        shared, reused, first_id, second_id.
        """
        count = max(len(self.first.ids), len(self.second.ids))
        one, two = (_padded(prompt.tokens, count) for prompt in (self.first, self.second))
        return pd.DataFrame(
            {
                "position": range(count),
                "first": [token and token.label for token in one],
                "second": [token and token.label for token in two],
                "shared": [at < self.shared for at in range(count)],
                "reused": [at < self.reused for at in range(count)],
                "first_id": pd.array([None if token is None else token.id for token in one], dtype="Int64"),
                "second_id": pd.array([None if token is None else token.id for token in two], dtype="Int64"),
            }
        )

    def blocks(self, sizes: Sequence[int] = (1, 16, 32, 256)) -> pd.DataFrame:
        """What an engine that caches whole blocks reuses. Columns: block_size, blocks, reused_tokens, saved_bytes."""
        tokens = [in_blocks(self.shared, len(self.second.ids), size) for size in sizes]
        return pd.DataFrame(
            {
                "block_size": list(sizes),
                "blocks": [count // size for count, size in zip(tokens, sizes, strict=True)],
                "reused_tokens": tokens,
                "saved_bytes": [count * self.bytes_per_token for count in tokens],
            }
        )

    def distances(self) -> pd.DataFrame:
        """How far K and V at the same position are from each other, the second prompt from nothing.

        Columns: layer, position, key, value: |a - b| over the mean of |a| and |b|, all KV heads together. 0 is the
        same, up to rounding along the shared prefix. In a latent (MLA) layer key is the latent, value the rotary key.
        """
        positions = range(self.facts.keys.shape[1])
        return _long(self.facts, self.facts.keys, self.facts.values, {"position": positions})

    def equal_tokens(self) -> pd.DataFrame:
        """The same for tokens past the shared prefix and the nearest equal token of the first prompt.

        Columns: layer, first_position, second_position, token, key, value. Keys carry the rotary position they were
        made with, so at different places they differ by that too.
        """
        places = {
            "first_position": [one for one, _ in self.pairs],
            "second_position": [two for _, two in self.pairs],
            "token": [self.second.tokens[two].label for _, two in self.pairs],
        }
        return _long(self.facts, self.facts.pair_keys, self.facts.pair_values, places)


def _padded(found: Sequence[Token], count: int) -> list[Token | None]:
    return [*found, *[None] * (count - len(found))]


def _long(facts: Reuse, keys: object, values: object, places: dict[str, Sequence[object]]) -> pd.DataFrame:
    """One row a layer and column of the arrays."""
    columns = {name: list(each) * len(facts.layers) for name, each in places.items()}
    layers = [layer for layer in facts.layers for _ in range(keys.shape[1])]
    return pd.DataFrame({"layer": layers, **columns, "key": keys.ravel(), "value": values.ravel()})
