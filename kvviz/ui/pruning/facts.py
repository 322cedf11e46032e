"""Where pruning hurts: facts at chosen depths of a text, and whether the model still knows them at its end."""

import streamlit as st

from kvviz.analysis.facts import FACTS, by_depth, by_policy
from kvviz.figures.facts import held_and_known, known_shares
from kvviz.locale import Translate
from kvviz.ui.pruning.facts_inputs import DEPTHS, Wanted, ask
from kvviz.ui.pruning.facts_save import take_away
from kvviz.ui.pruning.facts_words import all_answers, idle, table, verdict
from kvviz.ui.pruning.facts_work import Probed, probe
from kvviz.ui.pruning.policy import card
from kvviz.ui.pruning.task import Progress, Turn, result_of, run_or_stop
from kvviz.ui.shell import Page


def show(page: Page) -> None:
    """The whole view."""
    t, wanted = page.t, ask(page)

    def work(progress: Progress, turn: Turn) -> Probed:
        return probe(page.resident.model, wanted, progress, turn)

    if wanted is not None:
        st.caption(_plan(t, wanted))
    task = run_or_stop(page, "facts", wanted, None if wanted is None else work, t("Ask"))
    if task is None:
        st.caption(t("Press Ask: the model reads texts with facts in them under each policy, and is asked for each."))
        _example(t)
        return
    found = result_of(page, task, wanted)
    if found is not None:
        _result(page, found)


def _plan(t: Translate, wanted: Wanted) -> str:
    told = t("{texts} texts of about {tokens} tokens, {facts} facts in each, read with {caches} caches")
    return told.format(texts=wanted.rounds, tokens=f"{wanted.tokens:,}", facts=len(DEPTHS), caches=len(wanted.arms) + 1)


def _example(t: Translate) -> None:
    fact = FACTS[0]
    with st.expander(t("What is asked?")):
        st.markdown(
            t(
                "A few sentences that say something nowhere else are put between the sentences of a book. After the "
                "text comes a question, which no policy can know beforehand. The model's probabilities for the next "
                "word are compared among the candidates; the likeliest counts as its answer."
            )
        )
        st.text(fact.statement.format(answer=fact.candidates[6]))
        st.text(f"Question: {fact.question}\nAnswer: {fact.cue} …")
        st.text(" · ".join(fact.candidates))


def _result(page: Page, found: Probed) -> None:
    t, names = page.t, found.names(page.t)
    quiet = idle(t, found)
    with st.container(key="facts_verdict"):
        for told in verdict(t, found):
            st.info(told) if told in quiet else st.markdown(told)
    st.plotly_chart(
        held_and_known(by_depth(found.answers), names, t, page.theme), theme=None, key="facts_map",
        alt=t("By policy and depth of the fact: share of heads that still hold the answer, and right answers"),
    )  # fmt: skip
    st.caption(
        t(
            "Left: of all layers x KV heads on which the policy acts, how many still hold the K and V of the answer's "
            "word when it is due. Right: how often the model found the answer likelier than every other candidate."
        )
    )
    st.subheader(t("How sure is that?"), anchor=False)
    st.plotly_chart(
        known_shares(by_policy(found.answers), names, found.arms, t, page.theme), theme=None, key="facts_shares",
        alt=t("Right answers of each policy with their 95 % interval, beside guessing"),
    )  # fmt: skip
    st.table(table(t, found), hide_index=True)
    st.caption(t("Intervals: Wilson, 95 %. More placements make them narrower."))
    with st.expander(t("Every answer")):
        st.dataframe(all_answers(t, found), hide_index=True, key="facts_answers")
    _example(t)
    for _, policy in found.wanted.arms:
        card(page, policy)
    take_away(page, found)
