"""Which keys no later query has looked at so far: by layer, by token, and as three queries see them."""

import streamlit as st

from kvviz.analysis.unattended import RULES, Rule, Unattended, unattended
from kvviz.figures.unattended import unattended_share
from kvviz.locale import N_, Translate
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.positions import position_input
from kvviz.ui.attention.unattended import map_figure, query_figure, sentences
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.shell import Page
from kvviz.ui.url import from_url, to_url

_RULES = {"relative": N_("relative to a uniform share"), "absolute": N_("absolute probability")}
_QUERIES = (178, 228, 278)


def never(page: Page, summary: AttentionSummary, layer: int, head: int) -> tuple[Rule, list[int]]:
    """The rule, the map, the numbers, the text, and three queries of one head.

    Returns the rule and the positions of the queries; the list is kept up to date while its fragment runs alone.
    """
    t = page.t
    st.subheader(t("Which tokens has nobody looked at so far?"), anchor=False)
    rule = _rule(t)
    found = unattended(summary.layers, rule)
    figure, note = map_figure(t, page.theme, summary, found)
    alt = t("Share of heads that never attended to a key by the queries seen so far, layers by keys")
    st.plotly_chart(figure, theme=None, key="never_map", alt=alt)
    if note:
        st.caption(note)
    _numbers(page, summary, found, rule)
    _text(t, summary, found)
    positions: list[int] = []
    st.fragment(_queries)(page, summary, layer, head, rule, positions)
    return rule, positions


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
            told = t("Threshold, times the uniform share")
            threshold = st.slider(told, 0.1, 5.0, RULES[name], 0.1, key="never_relative", bind="query-params")
        else:
            told = t("Threshold, a probability")
            threshold = st.slider(
                told, 0.001, 0.2, RULES[name], 0.001, key="never_absolute", bind="query-params", format="%.3f"
            )
    too_new = right.slider(
        t("Too new to tell: fewer later queries than"), 1, 64, 8, key="never_too_new", bind="query-params"
    )
    return Rule(name, float(threshold), int(too_new))


def _numbers(page: Page, summary: AttentionSummary, found: Unattended, rule: Rule) -> None:
    t = page.t
    figure = unattended_share(summary.unattended(*rule), t, page.theme)
    left, right = st.columns([3, 2], gap="large", vertical_alignment="center")
    alt = t("Share of the entries of each layer that were never attended so far")
    left.plotly_chart(figure, theme=None, key="never_share", alt=alt)
    with right.container(key="never_numbers"):
        for line in sentences(t, summary, found, rule):
            st.text(line)
        st.caption(t("An entry is one key of one layer and query head. “Never” means: by the queries seen so far."))


def _text(t: Translate, summary: AttentionSummary, found: Unattended) -> None:
    st.markdown("**" + t("The same on the text: the share of all heads that never looked at a token.") + "**")
    token_strip(
        summary.tokens,
        key="never_strip",
        t=t,
        weights=found.by_token,
        weight_colour="evicted",
        scale=[(part, f"{part:.0%}") for part in (0.0, 0.5, 1.0)],
    )


def default_queries(count: int) -> tuple[int, int, int]:
    """The three positions shown first of a text of `count` tokens."""
    return _QUERIES if count > _QUERIES[-1] else ((count - 1) // 2, 3 * (count - 1) // 4, count - 1)


def _queries(page: Page, summary: AttentionSummary, layer: int, head: int, rule: Rule, chosen: list[int]) -> None:
    t, count = page.t, len(summary.ids)
    told = t("Three queries over the same keys, layer {layer}, head {head}: do they leave out the same ones?")
    st.markdown("**" + told.format(layer=layer, head=head) + "**")
    places = st.columns([1, 1, 1, 3])
    names = (t("First query"), t("Second query"), t("Third query"))
    chosen[:] = [
        position_input(place, name, count, key=f"never_query_{index}", default=default)
        for index, (place, name, default) in enumerate(zip(places, names, default_queries(count), strict=False))
    ]
    figure = query_figure(t, page.theme, summary, layer, head, chosen, rule)
    st.plotly_chart(
        figure, theme=None, key="never_queries", alt=t("Attention of three queries of one head over the same keys")
    )
    st.caption(t("Dotted: the threshold. The scale is logarithmic; what is below 0.0001 is not drawn."))
