"""Which keys no later query has looked at so far: by layer, by token, and as three queries see them."""

import numpy as np
import streamlit as st

from kvviz.analysis.attention import OUT_OF_WINDOW, TOO_NEW
from kvviz.analysis.unattended import RULES, Rule, Unattended, pooled, unattended
from kvviz.figures.unattended import query_rows, unattended_map, unattended_share
from kvviz.locale import N_, Translate
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.positions import position_input
from kvviz.ui.attention.recompute import kept
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.shell import Page
from kvviz.ui.url import from_url, to_url
from kvviz.units import size

_RULES = {"relative": N_("relative to a uniform share"), "absolute": N_("absolute probability")}
_QUERIES = (178, 228, 278)


def never(page: Page, summary: AttentionSummary, layer: int, head: int) -> Rule:
    """The rule, the numbers, the map, the strip, and three queries of one head; the rule that was chosen."""
    t = page.t
    st.subheader(t("Which tokens has nobody looked at so far?"), anchor=False)
    rule = _rule(t)
    found = unattended(summary.layers, rule)
    _map(page, summary, found)
    _numbers(page, summary, found, rule)
    st.markdown("**" + t("The same on the text: the share of all heads that never looked at a token.") + "**")
    shares = found.by_token
    token_strip(
        summary.tokens,
        key="never_strip",
        t=t,
        weights=shares,
        weight_colour="evicted",
        scale=[(part, f"{part:.0%}") for part in (0.0, 0.5, 1.0)],
    )
    st.fragment(_queries)(page, summary, layer, head, rule)
    return rule


def _rule(t: Translate) -> Rule:
    left, middle, right = st.columns(3, vertical_alignment="bottom", gap="medium")
    with left:
        from_url("never_rule", list(_RULES), "relative")
        name = st.selectbox(
            t("Rule"),
            list(_RULES),
            format_func=lambda option: t(_RULES[option]),
            key="never_rule",
            help=t("Relative: 1 is the share of a query that looks at all its keys alike, whatever their number."),
        )
        to_url("never_rule", "relative")
    with middle:
        if name == "relative":
            most = t("No query gave it as much as … times its uniform share")
            threshold = st.slider(most, 0.1, 5.0, RULES[name], 0.1, key="never_relative", bind="query-params")
        else:
            most = t("No query gave it a probability of …")
            threshold = st.slider(
                most, 0.001, 0.2, RULES[name], 0.001, key="never_absolute", bind="query-params", format="%.3f"
            )
    too_new = right.slider(
        t("Too new to tell: fewer later queries than"), 1, 64, 8, key="never_too_new", bind="query-params"
    )
    return Rule(name, float(threshold), int(too_new))


def _map(page: Page, summary: AttentionSummary, found: Unattended) -> None:
    t = page.t
    small, cell = pooled(found)
    figure = unattended_map(
        small.share,
        small.state == TOO_NEW,
        small.state == OUT_OF_WINDOW,
        [layer.layer for layer in summary.layers],
        summary.labels,
        cell,
        t,
        page.theme,
    )
    alt = t("Share of heads that never attended to a key by the queries seen so far, layers by keys")
    st.plotly_chart(figure, theme=None, key="never_map", alt=alt)
    if cell > 1:
        told = t("Each cell stands for {count} neighbouring keys: the mean share of those that can be told.")
        st.caption(told.format(count=cell))


def _numbers(page: Page, summary: AttentionSummary, found: Unattended, rule: Rule) -> None:
    t = page.t
    frame = summary.unattended(*rule)
    figure = unattended_share(frame, t, page.theme)
    left, right = st.columns([3, 2], gap="large", vertical_alignment="center")
    left.plotly_chart(
        figure,
        theme=None,
        key="never_share",
        alt=t("Share of the entries of each layer that were never attended so far"),
    )
    with right.container(key="never_numbers"):
        for line in _lines(t, found, int(frame["unattended_bytes"].sum()), frame):
            st.text(line)
        st.caption(t("An entry is one key of one layer and query head. “Never” means: by the queries seen so far."))


def _lines(t: Translate, found: Unattended, nobody: int, frame: object) -> list[str]:
    counts, by_token = found.counts, found.by_token
    judged = counts["never"] + counts["attended"]
    tokens, known = int((by_token == 1).sum()), int(np.isfinite(by_token).sum())
    entries, unread = int(frame["entries"].sum()), int(frame["unattended_entries"].sum())
    told = (
        t("{count} of {total} entries ({share}) were never attended by the queries seen so far."),
        t("{count} of {total} tokens were never attended in any head by the queries seen so far."),
        t("{count} of {total} K/V entries were read by none of the query heads that share them: {size} of cache."),
        t("Not counted: {new} entries too new to tell, {out} out of window."),
    )
    share = f"{counts['never'] / judged:.1%}" if judged else "–"
    return [
        told[0].format(count=f"{counts['never']:,}", total=f"{judged:,}", share=share),
        told[1].format(count=f"{tokens:,}", total=f"{known:,}"),
        told[2].format(count=f"{unread:,}", total=f"{entries:,}", size=size(nobody)),
        told[3].format(new=f"{counts['too_new']:,}", out=f"{counts['out_of_window']:,}"),
    ]


def default_queries(count: int) -> tuple[int, int, int]:
    """The three positions shown first of a text of `count` tokens."""
    return _QUERIES if count > _QUERIES[-1] else (count // 2 - (count > 1), (3 * count) // 4, count - 1)


def _queries(page: Page, summary: AttentionSummary, layer: int, head: int, rule: Rule) -> None:
    t, count = page.t, len(summary.ids)
    told = t("Three queries over the same keys, layer {layer}, head {head}: do they leave out the same ones?")
    st.markdown("**" + told.format(layer=layer, head=head) + "**")
    places = st.columns([1, 1, 1, 3])
    names = (t("First query"), t("Second query"), t("Third query"))
    positions = [
        position_input(place, name, count, key=f"never_query_{index}", default=default)
        for index, (place, name, default) in enumerate(zip(places, names, default_queries(count), strict=False))
    ]
    rows = kept(summary, ("queries", layer, *positions), lambda: summary.queries(layer, positions))[head]
    choices = next(each for each in summary.layers if each.layer == layer).choices
    lines = [rule.threshold / choices[at] if rule.rule == "relative" else rule.threshold for at in positions]
    figure = query_rows(rows, positions, lines, summary.labels, t, page.theme)
    st.plotly_chart(
        figure, theme=None, key="never_queries", alt=t("Attention of three queries of one head over the same keys")
    )
    st.caption(t("Dotted: the threshold. The scale is logarithmic; what is below 0.0001 is not drawn."))
