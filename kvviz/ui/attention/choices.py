"""What a visitor set on the Attention page, and the Python lines that repeat the analysis with it."""

from dataclasses import dataclass

from kvviz.analysis.unattended import Rule
from kvviz.engine.knockout import Knockout
from kvviz.models.prompts import encode
from kvviz.summary import AttentionSummary
from kvviz.ui.house import ModelKey


@dataclass(frozen=True, eq=False, slots=True)
class Choices:
    """What the visitor set on the page: the head, the sinks' epsilon, the rule, the three queries."""

    layer: int
    head: int
    epsilon: float
    diagonal: bool
    rule: Rule
    queries: list[int]


def as_python(key: ModelKey, summary: AttentionSummary, chosen: Choices, taken: Knockout | None = None) -> str:
    """The lines that repeat the analysis in a notebook: the text where it gives the same ids again, else the ids."""
    rule = chosen.rule
    never = f"rule={rule.rule!r}, threshold={rule.threshold}, too_new={rule.too_new}"
    lines = [
        "import kvviz",
        "",
        f"lm = kvviz.load({key.name!r}, device={key.device!r}, dtype={key.dtype!r})",
        f"text = {_text(summary)!r}",
        "summary = kvviz.attention(lm, text)",
        f"sinks = summary.sinks(epsilon={chosen.epsilon}, diagonal={chosen.diagonal})",
        "heads = summary.heads()",
        "received = summary.received()",
        f"never = summary.never_attended({never})",
        f"unattended = summary.unattended({never})",
        f"attention = summary.map({chosen.layer}, {chosen.head})  # query x key",
    ]
    if taken is not None:
        lines += [
            "",
            "from kvviz.engine.knockout import take_away",
            f"without = take_away(lm, summary.ids, {list(taken.positions)}, since={taken.since})",
        ]
    return "\n".join(lines)


def _text(summary: AttentionSummary) -> str | list[int]:
    """The ids as a text when it gives the very same ids again, else the ids."""
    text = summary.lm.tokenizer.decode(summary.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    try:
        same = encode(summary.lm, text).ids == summary.ids
    except Exception:  # any tokenizer may stumble over its own text; the ids are always right
        same = False
    return text if same else list(summary.ids)
