"""Many prompts through a prefix cache: what is shared, what is evicted, and what block sizes change."""

import streamlit as st

from kvviz.figures.prefixcache import held_bytes, hit_rates, served_tokens
from kvviz.figures.prefixtree import tree
from kvviz.locale import Translate
from kvviz.ui.prefix.many_blocks import blocks, frames
from kvviz.ui.prefix.many_inputs import ask
from kvviz.ui.prefix.many_save import save
from kvviz.ui.prefix.many_tables import events_table, misses_table
from kvviz.ui.prefix.many_words import notes, numbers, tree_note
from kvviz.ui.prefix.many_work import ManyResult, serving
from kvviz.ui.shell import Page
from kvviz.ui.task import result_of, run_or_stop


def show(page: Page) -> None:
    """The whole view."""
    t = page.t
    wanted, prompts = ask(page)
    work = None
    if wanted is not None:
        work = serving(page.resident.model, prompts, wanted.budget_bytes, wanted.verify)
    task = run_or_stop(page, "prefix_many", wanted, work, t("Run"))
    if task is None:
        st.caption(t("Press Run: the prompts are read one after another, each from the longest prefix that is stored."))
        return
    result = result_of(page, task, wanted)
    if result is None:
        return
    _numbers(t, result)
    _tree(page, result)
    _over_time(page, result)
    blocks(page, result)
    save(page, task.wanted, result)


def _numbers(t: Translate, result: ManyResult) -> None:
    for place, (name, label, value, below) in zip(st.columns(4), numbers(t, result), strict=True):
        with place.container(key=f"prefix_many_{name}"):
            st.metric(label, value)
            st.caption(below)
    for line in notes(t, result):
        st.caption(line)


def _tree(page: Page, result: ManyResult) -> None:
    t = page.t
    st.subheader(t("What lies in the cache, and what goes next?"), anchor=False)
    if result.tree.empty:
        st.caption(t("Nothing is stored: every prompt is larger than the budget."))
        return
    alt = t("The tree of stored prompts, every node at its positions")
    st.plotly_chart(tree(result.tree, t, page.theme), theme=None, key="prefix_tree", alt=alt)
    st.caption(tree_note(t))


def _over_time(page: Page, result: ManyResult) -> None:
    t, theme = page.t, page.theme
    st.subheader(t("What did each prompt find?"), anchor=False)
    alt = t("Tokens of each prompt, reused and computed")
    st.plotly_chart(served_tokens(result.served, t, theme), theme=None, key="prefix_served", alt=alt)
    misses_table(page, result)
    left, right = st.columns(2, gap="medium")
    rates = hit_rates(frames(t, result), t, theme)
    left.plotly_chart(rates, theme=None, key="prefix_rates", alt=t("Hit rate after every prompt"))
    held = held_bytes(result.served, result.budget_bytes, t, theme)
    right.plotly_chart(held, theme=None, key="prefix_held", alt=t("Bytes held after every prompt, against the budget"))
    events_table(page, result)
