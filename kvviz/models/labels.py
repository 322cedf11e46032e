"""How text and pieces of characters are made visible: white space as marks, control characters as codes, bytes as hex.

Marks: "·" space, "⏎" newline, "⇥" tab. Codes: `\\x00` for control characters, `U+202E` for everything else that
leaves no ink. A combining mark with nothing to stand on gets a dotted circle.
"""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby

_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}
_JOINERS = "\u200c\u200d"
# Letters and symbols by category, but blank on the screen: Hangul fillers and the empty Braille cell.
_BLANK = "\u115f\u1160\u3164\uffa0\u2800"
_SELECTORS = [(0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x180B, 0x180F), (0x034F, 0x034F)]


def visible(text: str) -> str:
    """The text with every character that leaves no ink replaced by a mark or a code."""
    if text.isascii() and text.isprintable():
        return text.replace(" ", "·")
    shown: list[str] = []
    base = False  # whether the character before can carry a mark
    for at, char in enumerate(text):
        if base and char in _JOINERS and at + 1 < len(text):
            shown.append(char)
            continue
        shown.append(_ink(char, base))
        base = shown[-1].endswith(char)
    return "".join(shown)


def _ink(char: str, base: bool) -> str:
    """One character as something to see; `base` says whether a character to stand on came before."""
    category = unicodedata.category(char)
    if char in _MARKS:
        return _MARKS[char]
    if category == "Cc":
        return f"\\x{ord(char):02x}"
    if category[0] == "M":
        if base:
            return char
        selector = any(low <= ord(char) <= high for low, high in _SELECTORS)
        return _code(char) if selector else "\u25cc" + char
    return _code(char) if category in ("Cf", "Co", "Cs", "Zs", "Zl", "Zp") or char in _BLANK else char


def _code(char: str) -> str:
    return f"U+{ord(char):04X}"


def split_labels(raws: Sequence[bytes]) -> list[str]:
    """One label per piece of UTF-8 text (none empty): whole characters visible, parts of one as hex with its name.

    Parts whose character is not complete within `raws` are hex alone.
    """
    labels: list[str] = []
    begin = 0
    for at in range(1, len(raws) + 1):
        # A piece that does not begin with a continuation byte begins a character.
        if at == len(raws) or not 0x80 <= raws[at][0] < 0xC0:
            labels += _group(tuple(raws[begin:at]))
            begin = at
    return labels


@lru_cache(maxsize=4096)  # a text in one script has few different groups
def _group(raws: tuple[bytes, ...]) -> list[str]:
    blob = b"".join(raws)
    edges = list(accumulate(map(len, raws), initial=0))
    parts: list[list[tuple[bool, str]]] = [[] for _ in raws]  # per piece: (is a whole character, text)
    for begin, end, char in _characters(blob):
        owners = range(bisect_right(edges, begin) - 1, bisect_left(edges, end))
        for number, owner in enumerate(owners, 1):
            if char and len(owners) == 1:
                parts[owner].append((True, char))
                continue
            code = blob[max(begin, edges[owner]) : min(end, edges[owner + 1])].hex(" ").upper()
            name = f" ({visible(char)} {number}/{len(owners)})" if char else ""
            parts[owner].append((False, code + name))
    return [_line(part) for part in parts]


def _line(part: list[tuple[bool, str]]) -> str:
    """Hex groups apart from each other and from the text beside them."""
    runs = [(whole, [text for _, text in run]) for whole, run in groupby(part, key=lambda item: item[0])]
    return " ".join(visible("".join(run)) if whole else " ".join(run) for whole, run in runs)


def _characters(blob: bytes) -> Iterator[tuple[int, int, str]]:
    """Begin, end and text of each UTF-8 character; a byte that belongs to none is given alone, with ""."""
    begin = 0
    while begin < len(blob):
        lead = blob[begin]
        end = begin + (1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)
        try:
            char = blob[begin:end].decode()
        except UnicodeDecodeError:
            end, char = begin + 1, ""
        yield begin, end, char
        begin = end
