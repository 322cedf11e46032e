"""Facts put into a long text, and where each of them stands in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvviz.analysis.facts import Fact, Placement
from kvviz.errors import Refused
from kvviz.models.chat import plain_ids
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import encode

SHIFT = 11  # sentences by which the filler of each text begins later
_LONGEST = 40  # tokens of a sentence of the filler: facts stand between sentences, close to where they should


@dataclass(frozen=True, eq=False, slots=True)
class Hidden:
    """One text with facts in it: ids, its words, and for each fact where it stands and the token of its answer."""

    text: str
    ids: tuple[int, ...]
    places: tuple[Placement, ...]
    spans: tuple[range, ...]
    answers: tuple[int, ...]


def usable(lm: LanguageModel, fact: Fact) -> Fact | None:
    """The fact with those of its candidates that are one token each after its cue, all different; None if under two."""
    ids = {}
    for candidate in fact.candidates:
        found = answer_id(lm, fact, candidate)
        if found is not None and found not in ids.values():
            ids[candidate] = found
    if len(ids) < 2:
        return None
    return Fact(fact.name, fact.statement, fact.question, fact.cue, tuple(ids))


def question_ids(lm: LanguageModel, fact: Fact) -> list[int]:
    """What is fed after the text."""
    return plain_ids(lm.tokenizer, _question(fact))


def _question(fact: Fact) -> str:
    return f"\n\nQuestion: {fact.question}\nAnswer: {fact.cue}"


def answer_id(lm: LanguageModel, fact: Fact, candidate: str) -> int | None:
    before, whole = question_ids(lm, fact), plain_ids(lm.tokenizer, f"{_question(fact)} {candidate}")
    return whole[-1] if whole[:-1] == before else None


def hide(lm: LanguageModel, places: Sequence[Placement], filler: str, tokens: int, skip: int) -> Hidden:
    """A text of about `tokens` tokens: sentences of `filler` from number `skip` on, and facts between them.

    Raises Refused where the facts do not fit or the tokenizer changes the words.
    """
    said = [place.fact.statement.format(answer=place.answer) for place in places]
    room = tokens - sum(len(plain_ids(lm.tokenizer, " " + each)) for each in said)
    sentences = _sentences(lm, filler, room, skip)
    if len(sentences) <= len(places):
        raise Refused(
            "A text of {tokens} tokens has no room for {count} facts with sentences between them. Take a longer one.",
            tokens=tokens,
            count=len(places),
        )
    parts, starts, length = [], {}, 0
    ends = np.cumsum([len(each) + 1 for each in sentences])
    borders = np.concatenate([[0], ends])
    before = [int(np.abs(borders - place.depth / 100 * ends[-1]).argmin()) for place in places]
    for index in range(len(sentences) + 1):
        for number in (each for each, at in enumerate(before) if at == index):
            starts[number] = length
            parts.append(said[number])
            length += len(said[number]) + 1
        if index < len(sentences):
            parts.append(sentences[index])
            length += len(sentences[index]) + 1
    text = " ".join(parts)
    return _located(lm, text, places, [(starts[number], said[number]) for number in range(len(places))])


def _sentences(lm: LanguageModel, filler: str, room: int, skip: int) -> list[str]:
    found = re.split(r"(?<=[.!?]) +", " ".join(filler.split()))
    chosen: list[str] = []
    for index in range(len(found)):
        sentence = found[(index + skip) % len(found)]
        size = len(plain_ids(lm.tokenizer, " " + sentence))
        if size > _LONGEST:
            continue
        if size > room:
            break
        chosen.append(sentence)
        room -= size
    return chosen


def _located(lm: LanguageModel, text: str, places: Sequence[Placement], said: Sequence[tuple[int, str]]) -> Hidden:
    """Which tokens are the facts' and which the answers', by the bytes that each token contributes."""
    prompt = encode(lm, text)
    typed = [token for token, origin in zip(prompt.tokens, prompt.origins, strict=True) if origin == "user"]
    if b"".join(token.raw for token in typed).strip() != text.encode():
        raise Refused(
            "The tokenizer of {name} changes the words of a text, so facts cannot be found in it.", name=lm.title
        )
    ends = np.cumsum([len(token.raw) for token in typed])
    shift = int(ends[-1]) - len(text.encode())  # a space that some tokenizers put in front

    def tokens_of(start: int, stop: int) -> range:
        first, last = (len(text[:at].encode()) + shift for at in (start, stop))
        low, high = np.searchsorted(ends, [first, last - 1], side="right")
        return range(typed[low].position, typed[high].position + 1)

    spans, answers = [], []
    for place, (start, sentence) in zip(places, said, strict=True):
        spans.append(tokens_of(start, start + len(sentence)))
        at = start + place.fact.statement.index("{answer}")
        answers.append(tokens_of(at, at + len(place.answer))[-1])
    return Hidden(text, prompt.ids, tuple(places), tuple(spans), tuple(answers))
