"""What each token id contributes to a text and how a person sees it: one label per id, none merged, none lost.

Labels are for reading (`kvviz.models.labels` says how they are written); `Token.raw` alone rebuilds the text.
"""

import codecs
import json
import re
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from transformers import PreTrainedTokenizerBase

from kvviz.models.labels import split_labels, visible


@dataclass(frozen=True, slots=True)
class Token:
    """One id of a text; `kind` is "text", "bytes" (not a whole character by itself) or "special"."""

    position: int
    id: int
    label: str
    kind: str
    raw: bytes  # exactly the UTF-8 bytes this id contributes to the text


def tokens(tokenizer: PreTrainedTokenizerBase, ids: Iterable[int], start: int = 0) -> list[Token]:
    """One Token per id; `start` is the position of the first, and above 0 the ids continue a text.

    The joined `raw` decode to what `tokenizer.decode(ids, skip_special_tokens=False,
    clean_up_tokenization_spaces=False)` says, up to two habits of some decoders: byte fallback writes one U+FFFD
    per byte of a broken character, and an end-of-word mark (GPT-1) leaves no space after the last word.
    """
    table, numbers = _table(tokenizer), [int(each) for each in ids]
    entries, first = [], start == 0
    for number in numbers:
        entry = table.entry(number, first)
        first = first and not entry[3]
        entries.append(entry)
    rows = zip(numbers, entries, _labels(entries), strict=True)
    return [Token(at, number, label, kind, raw) for at, (number, (raw, _, kind, _), label) in enumerate(rows, start)]


def plain_text(found: Iterable[Token]) -> str:
    """The text of the tokens, special tokens spelled out and broken characters as U+FFFD."""
    return b"".join(token.raw for token in found).decode(errors="replace")


class TextStream:
    """Ids in, text out, as soon as its characters are whole; `start` as in `tokens`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, start: int = 0) -> None:
        self._table = _table(tokenizer)
        self._first = start == 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this id completes, "" while a character is still in pieces."""
        raw, _, _, known = self._table.entry(int(token_id), self._first)
        self._first = self._first and not known
        return self._decoder.decode(raw)

    def rest(self) -> str:
        """What is left when no more ids come: U+FFFD for an unfinished character, else ""."""
        return self._decoder.decode(b"", final=True)


_Entry = tuple[bytes, str, str, bool]  # raw, label, kind, and whether the vocabulary has the id
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_TABLES: "weakref.WeakKeyDictionary[PreTrainedTokenizerBase, _Table]" = weakref.WeakKeyDictionary()


def _labels(entries: list[_Entry]) -> list[str]:
    """The entries' labels, pieces of one character labelled with the character they form."""
    labels: list[str] = []
    for kind, run in groupby(entries, key=lambda entry: entry[2]):
        pieces = list(run)
        joins = kind == "bytes" and len(pieces) > 1
        labels += split_labels([piece[0] for piece in pieces]) if joins else [piece[1] for piece in pieces]
    return labels


def _table(tokenizer: PreTrainedTokenizerBase) -> "_Table":
    table = _TABLES.get(tokenizer)
    return table if table is not None else _TABLES.setdefault(tokenizer, _Table(tokenizer))


class _Table:
    """Entries of one tokenizer's ids, each worked out when first met; holds no reference to the tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        steps: set[str] = set()
        if backend is None:
            # Bound methods would keep the tokenizer, and with it this table's place in _TABLES, alive for ever.
            proxy = weakref.proxy(tokenizer)
            self._piece: Callable[[int], str | None] = lambda number: proxy.convert_ids_to_tokens(number)
            self._decode: Callable[[list[str]], str] = lambda pieces: proxy.convert_tokens_to_string(pieces)
        else:
            self._piece = backend.id_to_token
            self._decode = backend.decoder.decode if backend.decoder else " ".join
            steps = _steps(json.loads(backend.decoder.__getstate__())) if backend.decoder else steps
        self._byte_level = "ByteLevel" in steps
        self._byte_fallback = "ByteFallback" in steps
        self._tail = self._decode(["a", "a"]).removeprefix("a")
        added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._special = added | set(tokenizer.all_special_ids)
        self._entries: dict[int, _Entry] = {}

    def entry(self, number: int, first: bool) -> _Entry:
        """What an id is, as the first piece of a text or a later one."""
        entry = self._entries.get(number)
        if entry is None:
            piece = self._piece(number)
            if piece is None:
                # Not kept: the tokenizer may learn the id later.
                return b"", f"[id {number}]", "special", False
            entry = self._entries[number] = self._describe(number, piece, self._raw(piece, first=False))
        if first and not self._byte_level:
            piece = self._piece(number) or ""
            raw = self._raw(piece, first=True)
            # A space mark that decodes to nothing at the start is still a space mark to look at.
            return self._describe(number, piece, raw) if raw else (raw, *entry[1:])
        return entry

    def _describe(self, number: int, piece: str, raw: bytes) -> _Entry:
        if number in self._special and piece:
            return raw, piece, "special", True
        if not raw:
            return raw, f"[id {number}]", "special", True
        try:
            return raw, visible(raw.decode()), "text", True
        except UnicodeDecodeError:
            return raw, split_labels([raw])[0], "bytes", True

    def _raw(self, piece: str, first: bool) -> bytes:
        if self._byte_level:
            return _from_byte_level(piece)
        match = _FALLBACK.fullmatch(piece) if self._byte_fallback else None
        if match and int(match[1], 16) >= 0x80:
            return bytes.fromhex(match[1])
        # Between two neighbours, so that what a decoder does only at the ends of a text stays out.
        text = self._decode([piece, "a"]) if first else self._decode(["a", piece, "a"]).removeprefix("a")
        return text.removesuffix(self._tail).encode()


def _steps(state: dict[str, Any]) -> set[str]:
    """The kinds of a decoder and of the decoders inside it."""
    return {state["type"]}.union(*(_steps(inner) for inner in state.get("decoders", ())))


def _alphabet() -> dict[str, int]:
    """The 256 characters by which byte-level BPE writes bytes: printable Latin-1 as itself, the rest from U+0100."""
    printable = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_ALPHABET = _alphabet()


def _from_byte_level(piece: str) -> bytes:
    try:
        return bytes([_ALPHABET[char] for char in piece])
    except KeyError:  # an added token is written as it is
        return piece.encode()
