"""What is wrong with a message catalogue, compared with the messages that the source marks."""

import ast
import re
from collections import Counter
from collections.abc import Iterable
from io import BytesIO
from string import Formatter

from babel.messages.catalog import Catalog
from babel.messages.extract import extract

KEYWORDS = {"t": (1,), "N_": (1,), "Refused": (1,)}  # as in `make messages`
SPAN = re.compile(r"`[^`]*`|\$[^$]*\$")


def marked(source: str) -> set[str]:
    """The messages that babel finds in Python `source`."""
    return {message for _, message, _, _ in extract("python", BytesIO(source.encode()), keywords=KEYWORDS)}


def written(source: str) -> tuple[set[str], list[str]]:
    """The same by Python's own parser, and a line for every argument that cannot be a message.

    `t(name)` is fine, the message is marked elsewhere by N_; a text put together inside the call is not.
    """
    messages, wrong = set[str](), list[str]()
    for call, first in _calls(ast.parse(source)):
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            messages.add(first.value)
        elif call == "N_" or _makes_text(first):
            wrong.append(f"line {first.lineno}: {call}({ast.unparse(first)})")
    return messages, wrong


def _calls(tree: ast.AST) -> Iterable[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            if name in KEYWORDS:
                yield name, node.args[0]


def _makes_text(node: ast.AST) -> bool:
    """Whether `node` writes or joins a text; the key in `NAMES["key"]` is none."""
    if isinstance(node, ast.Subscript):
        return _makes_text(node.value)
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr | ast.BinOp) or any(map(_makes_text, ast.iter_child_nodes(node)))


def problems(messages: set[str], catalogue: Catalog) -> list[str]:
    """One line for each message that is missing, left over, empty, fuzzy or changed in what must stay."""
    translated = {message.id: message for message in catalogue if message.id}
    lines = [f"missing: {each}" for each in sorted(messages - translated.keys())]
    lines += [f"left over: {each}" for each in sorted({*translated, *catalogue.obsolete} - messages)]
    for key in sorted(messages & translated.keys()):
        message = translated[key]
        if not message.string.strip():
            lines.append(f"empty: {key}")
        elif message.fuzzy:
            lines.append(f"fuzzy: {key}")
        else:
            lines += [f"{what}: {key}" for what in _changed(key, message.string)]
    return lines


def _changed(message: str, translation: str) -> list[str]:
    try:
        same = _placeholders(message) == _placeholders(translation)
    except ValueError:
        return ["unbalanced braces"]
    return [
        *([] if same else ["placeholders differ"]),
        *([] if _markup(message) == _markup(translation) else ["markup"]),
    ]


def _placeholders(text: str) -> set[tuple[str, str | None, str | None]]:
    return {(name, spec, how) for _, name, spec, how in Formatter().parse(text) if name is not None}


def _markup(text: str) -> Counter[str]:
    """Code and formulas, which are the same in every language, and the signs that would open one."""
    return Counter([*SPAN.findall(text), *(sign for sign in text if sign in "`$")])
