"""From a typed text to the ids a model is fed, each with where it comes from, or a sentence why that cannot be."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from kvviz.errors import Refused
from kvviz.models.chat import chat_ids, head_ids, plain_ids
from kvviz.models.tokens import Token, plain_text, tokens

if TYPE_CHECKING:
    from kvviz.models.loading import LanguageModel

TURN = "---"
_TURNS = re.compile(rf"\n{TURN}[ \t]*\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Prompt:
    """A text as typed and what the model is fed for it; `origins` has "user", "template" or "bos" for each id."""

    text: str
    ids: tuple[int, ...]
    tokens: tuple[Token, ...]
    origins: tuple[str, ...]

    @property
    def typed_controls(self) -> tuple[int, ...]:
        """Positions of control tokens that are there because the person typed their spelling."""
        return tuple(
            token.position
            for token, origin in zip(self.tokens, self.origins, strict=True)
            # An unknown word is a special token too, but nobody typed "[UNK]".
            if origin == "user" and token.kind == "special" and token.label in self.text
        )


def encode(
    lm: "LanguageModel", text: str, *, chat: bool = False, limit: int | None = None, past_context: bool = False
) -> Prompt:
    """The prompt for `text`, never stripped; `chat` wraps it as a user's turn in the model's chat template.

    The beginning-of-sequence token comes first and once where the tokenizer or the template wants one; an end of
    sequence that a tokenizer would append is left off, because the model is to go on. Raises Refused if there
    is nothing to feed, if the text cannot be encoded, or if it is longer than `limit` or `lm.context` tokens
    (`past_context` lifts the latter for a text that is no chat).
    """
    if chat:
        return encode_turns(lm, [text], limit=limit)
    _check_characters(text)
    return _prompt(lm, text, *_raw(lm.tokenizer, text), limit, past_context)


def encode_turns(lm: "LanguageModel", turns: Sequence[str], *, limit: int | None = None) -> Prompt:
    """The prompt for a conversation in the model's chat template: turns of the user and the model alternate.

    The user has the first and the last. All that was said has the origin "user", `Prompt.text` has the turns between
    lines of `TURN`. Raises Refused as `encode` does, and for a conversation that ends with the model's turn.
    """
    if not len(turns) % 2:
        raise Refused("A conversation has to end with the user's turn. Add one, or leave the model's last turn out.")
    for turn in turns:
        _check_characters(turn)
    return _prompt(lm, f"\n{TURN}\n".join(turns), *chat_ids(lm.tokenizer, turns), limit)


def turns_of(text: str) -> list[str]:
    """The turns of a typed conversation: lines of `TURN` alone part them."""
    return _TURNS.split(text)


def _check_characters(text: str) -> None:
    broken = _SURROGATE.search(text)
    if broken:
        raise Refused(
            "Character {position} of the prompt is half of a character (a lone surrogate, {code}), as a broken paste "
            "leaves behind. Delete it or paste the text again.",
            position=broken.start() + 1,
            code=f"U+{ord(broken[0]):04X}",
        )


def _prompt(
    lm: "LanguageModel", text: str, ids: list[int], origins: list[str], limit: int | None, past_context: bool = False
) -> Prompt:
    if not ids:
        raise Refused(
            "The prompt is empty, and this model starts with no token of its own. Type at least one character."
        )
    _check_length(len(ids), None if past_context else lm.context, limit)
    found = tokens(lm.tokenizer, ids)
    if "\0" in text and plain_text(found).count("\0") < text.count("\0"):
        raise Refused("This model's tokenizer cannot encode the NUL character in the prompt. Delete it.")
    return Prompt(text, tuple(ids), tuple(found), tuple(origins))


def ids_of(
    lm: "LanguageModel", text: str | Prompt | Sequence[int], *, chat: bool = False, past_context: bool = False
) -> tuple[int, ...]:
    """The ids a model is fed for a text, an encoded prompt, or ids as they are.

    `past_context` allows more tokens than the model was made for. Raises Refused as `encode` does, for no id at all,
    and for ids the model has no embedding for.
    """
    if isinstance(text, str):
        text = encode(lm, text, chat=chat, past_context=past_context)
    ids = tuple(int(number) for number in (text.ids if isinstance(text, Prompt) else text))
    if not ids:
        raise Refused("There is no token. Type at least one character.")
    size = lm.model.get_input_embeddings().weight.shape[0]
    wrong = next((number for number in ids if not 0 <= number < size), None)
    if wrong is not None:
        raise Refused("This model has no token {id}: its ids go from 0 to {last}.", id=wrong, last=size - 1)
    _check_length(len(ids), None if past_context else lm.context, None)
    return ids


def _check_length(count: int, context: int | None, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise Refused(
            "The prompt is {count:,} tokens long and at most {limit:,} are allowed. Shorten it.",
            count=count,
            limit=limit,
        )
    if context is not None and count > context:
        raise Refused(
            "The prompt is {count:,} tokens long and this model was made for at most {context:,}. Shorten it.",
            count=count,
            context=context,
        )


def _raw(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[str]]:
    typed, head = plain_ids(tokenizer, text), head_ids(tokenizer)
    if typed[: len(head)] == head:
        head = []
    return head + typed, ["bos"] * len(head) + ["user"] * len(typed)
