"""The whole analysis of a text as one HTML file."""

import numpy as np

from kvviz.analysis.attention import sink_share_frame
from kvviz.analysis.contribution import contribution_frame
from kvviz.analysis.knockout import losses_frame
from kvviz.analysis.maps import sink_columns
from kvviz.analysis.rows import received_by_all
from kvviz.analysis.unattended import unattended
from kvviz.engine.knockout import Knockout
from kvviz.figures.attention import head_map
from kvviz.figures.contribution import glow_and_fade
from kvviz.figures.heatmap import MODES, attention_map
from kvviz.figures.knockout import loss_change
from kvviz.figures.report import Part, Strip, document
from kvviz.figures.unattended import unattended_share
from kvviz.figures.wall import head_wall
from kvviz.locale import Translate
from kvviz.palette import Theme
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.choices import Choices
from kvviz.ui.attention.recompute import kept
from kvviz.ui.attention.takeaway import loss_sentence, next_tokens
from kvviz.ui.attention.unattended import map_figure, query_figure, sentences
from kvviz.ui.attention.words import heads_sentence, kv_heads, pooling_sentence


def as_html(
    t: Translate, theme: Theme, lang: str, summary: AttentionSummary, chosen: Choices, taken: Knockout | None
) -> str:
    """Everything about one text; `taken` is what taking tokens away came to, if somebody did."""
    parts = [_sinks(t, theme, summary, chosen), _received(t, summary), *_maps(t, theme, summary, chosen)]
    parts += _never(t, theme, summary, chosen)
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


def _maps(t: Translate, theme: Theme, summary: AttentionSummary, chosen: Choices) -> list[Part]:
    """The open head, its layer, and what came of its attention."""
    layer, head, everything = chosen.layer, chosen.head, range(len(summary.ids))
    measures = summary.of_layer(layer)
    hidden = sink_columns(measures, head, chosen.epsilon, diagonal=chosen.diagonal)
    key = ("view", layer, head, everything, everything, hidden)
    view = kept(summary, key, lambda: summary.view(layer, head, queries=everything, keys=everything, hidden=hidden))
    names = {mode: t(name) for mode, name in MODES.items() if mode in ("linear", "log")}
    told = [pooling_sentence(t, *view.cell)] if view.cell != (1, 1) else []
    heading = heads_sentence(t, summary, layer, head)
    parts = [
        Part(f"{heading} {name}", [attention_map(view, summary.labels, mode, t, theme), *told])
        for mode, name in names.items()
    ]
    wall = head_wall(measures.pooled, kv_heads(summary, layer), measures.choices, head, t, theme)
    parts.append(Part(t("All heads of layer {layer}").format(layer=layer), [wall]))
    if measures.contribution is not None:
        glow = glow_and_fade(contribution_frame(measures, head), summary.labels, t, theme)
        parts.append(Part(t("What every key received, and what came of it"), [glow]))
    return parts


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
    told = t("Taken away: {tokens}, from position {since} on").format(tokens=gone, since=taken.since)
    contents = [told, loss_sentence(t, taken)]
    if not frame.empty:
        contents.append(loss_change(frame, taken.positions, t, theme))
    return Part(t("With a token taken away"), [*contents, next_tokens(t, summary, taken)])
