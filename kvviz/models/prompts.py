"""From a typed text to the ids a model is fed, each with where it comes from, or a sentence why that cannot be."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from kvviz.errors import Refused
from kvviz.models.tokens import Token, plain_text, tokens

if TYPE_CHECKING:
    from kvviz.models.loading import LanguageModel

_SURROGATE = re.compile("[\ud800-\udfff]")
_STAND_IN = "\ue000kvviz\ue001"  # private-use characters: no template can hold them already


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


def encode(lm: "LanguageModel", text: str, *, chat: bool = False, limit: int | None = None) -> Prompt:
    """The prompt for `text`, never stripped; `chat` wraps it as a user's turn in the model's chat template.

    The beginning-of-sequence token comes first and once where the tokenizer or the template wants one; an end of
    sequence that a tokenizer would append is left off, because the model is to go on. Raises Refused if there
    is nothing to feed, if the text cannot be encoded, or if it is longer than `limit` or `lm.context` tokens.
    """
    broken = _SURROGATE.search(text)
    if broken:
        raise Refused(
            "Character {position} of the prompt is half of a character (a lone surrogate, {code}), as a broken paste "
            "leaves behind. Delete it or paste the text again.",
            position=broken.start() + 1,
            code=f"U+{ord(broken[0]):04X}",
        )
    ids, origins = (_chat if chat else _raw)(lm.tokenizer, text)
    if not ids:
        raise Refused(
            "The prompt is empty, and this model starts with no token of its own. Type at least one character."
        )
    _check_length(len(ids), lm.context, limit)
    found = tokens(lm.tokenizer, ids)
    if "\0" in text and plain_text(found).count("\0") < text.count("\0"):
        raise Refused("This model's tokenizer cannot encode the NUL character in the prompt. Delete it.")
    return Prompt(text, tuple(ids), tuple(found), tuple(origins))


def ids_of(lm: "LanguageModel", text: str | Prompt | Sequence[int], *, chat: bool = False) -> tuple[int, ...]:
    """The ids a model is fed for a text, an encoded prompt, or ids as they are.

    Raises Refused as `encode` does, for no id at all, and for ids the model has no embedding for.
    """
    if isinstance(text, str):
        text = encode(lm, text, chat=chat)
    ids = tuple(int(number) for number in (text.ids if isinstance(text, Prompt) else text))
    if not ids:
        raise Refused("There is no token. Type at least one character.")
    size = lm.model.get_input_embeddings().weight.shape[0]
    wrong = next((number for number in ids if not 0 <= number < size), None)
    if wrong is not None:
        raise Refused("This model has no token {id}: its ids go from 0 to {last}.", id=wrong, last=size - 1)
    _check_length(len(ids), lm.context, None)
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


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, special: bool = False) -> list[int]:
    return list(tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])


def _head(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What the tokenizer puts in front of every text by its own rule: a BOS, or nothing."""
    bare, full = _ids(tokenizer, "a"), _ids(tokenizer, "a", special=True)
    starts = [at for at in range(len(full)) if full[at : at + len(bare)] == bare]
    return full[: starts[0]] if starts else []


def _raw(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[str]]:
    typed, head = _ids(tokenizer, text), _head(tokenizer)
    if typed[: len(head)] == head:
        head = []
    return head + typed, ["bos"] * len(head) + ["user"] * len(typed)


def _chat(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[str]]:
    if not tokenizer.chat_template or not tokenizer.is_fast:
        raise Refused("This model comes without a usable chat template. Switch the chat template off.")
    rendered = _render(tokenizer, text)
    begin, end = _turn(tokenizer, rendered, text)
    encoded = tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, spans = list(encoded["input_ids"]), _spans(encoded["offset_mapping"], rendered)
    origins = ["user" if left < end and right > begin else "template" for left, right in spans]
    head = _head(tokenizer)
    mark = head[0] if head else tokenizer.bos_token_id
    marks = [at for at, origin in enumerate(origins) if origin == "template" and ids[at] == mark]
    if head and not marks:
        return head + ids, ["bos"] * len(head) + origins
    # SmolLM2 calls BOS what its template writes before every turn: a mark that comes again is no beginning.
    if marks and (head or len(marks) == 1):
        origins[marks[0]] = "bos"
    return ids, origins


def _render(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    turn = [{"role": "user", "content": text}]
    try:
        return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is somebody's program: anything can come out of it
        raise Refused(
            "The model's chat template does not accept this prompt ({reason}). Switch the chat template off.",
            reason=" ".join(str(error).split())[:200] or type(error).__name__,
        ) from error


def _turn(tokenizer: PreTrainedTokenizerBase, rendered: str, text: str) -> tuple[int, int]:
    """Begin and end, in the rendered template, of what it made of the user's text."""
    # Searching for the text would find "user" in the template itself; a stand-in is found only once.
    before, _, after = _render(tokenizer, _STAND_IN).rpartition(_STAND_IN)
    end = len(rendered) - len(after)
    if rendered.startswith(before) and rendered.endswith(after) and end >= len(before):
        return len(before), end
    # A template that looks into the text ("/no_think") frames it differently: the last place it stands is the turn.
    body = rendered[:end] if rendered.endswith(after) else rendered
    for form in (text, text.strip()):
        if form and form in body:
            begin = body.rindex(form)
            return begin, begin + len(form)
    raise Refused("The model's chat template rewrites this prompt beyond recognition. Switch the chat template off.")


def _spans(offsets: list[tuple[int, int]], rendered: str) -> list[tuple[int, int]]:
    """The characters each id stands for, white space around them left out where there is something else."""
    spans, reached = [], 0
    for left, right in offsets:
        # Byte-level tokenizers that trim offsets (Llama 3) say (n, n) for a token of white space that ends at n.
        begin = left if right > left else min(reached, left)
        piece = rendered[begin:right]
        core = piece.strip()
        # A control token may swallow the white space beside it (Phi-3), which can be the user's.
        spans.append((begin + piece.index(core), begin + piece.index(core) + len(core)) if core else (begin, right))
        reached = max(reached, right)
    return spans
