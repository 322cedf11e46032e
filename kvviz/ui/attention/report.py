"""The whole analysis of a text as one HTML file, and as the Python lines that repeat it."""

from dataclasses import dataclass

import numpy as np

from kvviz.analysis.attention import sink_share_frame
from kvviz.analysis.knockout import losses_frame
from kvviz.analysis.rows import received_by_all
from kvviz.analysis.unattended import Rule, unattended
from kvviz.engine.knockout import Knockout
from kvviz.figures.attention import head_map
from kvviz.figures.knockout import loss_change
from kvviz.figures.report import Part, Strip, document
from kvviz.figures.unattended import unattended_share
from kvviz.locale import Translate
from kvviz.models.prompts import encode
from kvviz.palette import Theme
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.takeaway import loss_sentence, next_tokens
from kvviz.ui.attention.unattended import map_figure, query_figure, sentences
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


def as_html(
    t: Translate, theme: Theme, lang: str, summary: AttentionSummary, chosen: Choices, taken: Knockout | None
) -> str:
    """Everything about one text; `taken` is what taking tokens away came to, if somebody did."""
    parts = [_sinks(t, theme, summary, chosen), _received(t, summary), *_never(t, theme, summary, chosen)]
    if taken is not None:
        parts.append(_taken(t, theme, summary, taken))
    parts.append(Part(t("All heads"), [summary.heads()], folded=True))
    return document(t("Attention of a text"), _facts(t, summary, chosen), parts, lang, theme)


def _facts(t: Translate, summary: AttentionSummary, chosen: Choices) -> list[tuple[str, str]]:
    lm, ids, rule = summary.lm, summary.ids, chosen.rule
    heads = sum(len(layer.received) for layer in summary.layers)
    return [
        (t("Model"), lm.title),
        (t("Weights"), lm.source + (". " + t(lm.note) if lm.note else "")),
        (t("Revision"), lm.revision),
        (t("Number format"), str(lm.dtype).removeprefix("torch.")),
        (t("Text"), t("{count} tokens, {distinct} different ones").format(count=len(ids), distinct=len(set(ids)))),
        (t("Measured"), t("{layers} layers, {heads} heads").format(layers=len(summary.layers), heads=heads)),
        (t("Never attended"), f"{rule.rule}, {rule.threshold:g}, {rule.too_new}"),
    ]


def _sinks(t: Translate, theme: Theme, summary: AttentionSummary, chosen: Choices) -> Part:
    shares = sink_share_frame(summary.layers, summary.heads(), chosen.epsilon, diagonal=chosen.diagonal)
    figure = head_map(shares, "sink_share", t("share of attention given to sinks"), t, theme)
    found = summary.sinks(chosen.epsilon, diagonal=chosen.diagonal)
    return Part(t("Sinks, ε = {epsilon}").format(epsilon=chosen.epsilon), [figure, found.head(50)])


def _received(t: Translate, summary: AttentionSummary) -> Part:
    weights = received_by_all(summary.layers)
    largest = float(np.nanmax(weights))
    told = t("Shaded by the square root of the mean attention received, over all heads; the darkest is {largest}.")
    strip = Strip(summary.labels, np.sqrt(weights / largest))
    return Part(t("What every token received"), [strip, told.format(largest=f"{largest:.3g}")])


def _never(t: Translate, theme: Theme, summary: AttentionSummary, chosen: Choices) -> list[Part]:
    found = unattended(summary.layers, chosen.rule)
    figure, note = map_figure(t, theme, summary, found)
    frame = summary.unattended(*chosen.rule)
    told = sentences(t, summary, found, chosen.rule)
    text = Strip(summary.labels, found.by_token, "evicted")
    contents = [figure, *filter(None, [note]), unattended_share(frame, t, theme), *told]
    contents += [t("The share of all heads that never looked at a token:"), text]
    parts = [Part(t("What nobody looked at so far"), contents)]
    if chosen.queries:
        told = t("Three queries, layer {layer}, head {head}").format(layer=chosen.layer, head=chosen.head)
        three = query_figure(t, theme, summary, chosen.layer, chosen.head, chosen.queries, chosen.rule)
        parts.append(Part(told, [three]))
    return parts


def _taken(t: Translate, theme: Theme, summary: AttentionSummary, taken: Knockout) -> Part:
    frame = losses_frame(taken.nll, taken.nll_without, summary.labels)
    gone = ", ".join(str(position) for position in taken.positions)
    contents = [t("Taken away: {tokens}").format(tokens=gone), loss_sentence(t, taken)]
    if not frame.empty:
        contents.append(loss_change(frame, taken.positions, t, theme))
    return Part(t("With a token taken away"), [*contents, next_tokens(t, summary, taken)])


def as_python(key: ModelKey, summary: AttentionSummary, chosen: Choices, taken: tuple[int, ...] = ()) -> str:
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
    if taken:
        lines += [
            "",
            "from kvviz.engine.knockout import take_away",
            f"without = take_away(lm, summary.ids, {list(taken)})",
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
