"""The page: sizes, the answer, both ways step by step, what they cost as the text grows."""

import streamlit as st

from kvviz.figures.latent import WAY_NAMES, latent_curves, latent_steps
from kvviz.geometry.latent import latent_stages
from kvviz.geometry.latentcounts import FORMULAS, latent_counts
from kvviz.locale import N_, Translate
from kvviz.ui.latent.inputs import Asked, ask
from kvviz.ui.latent.measure import Measured, measure
from kvviz.ui.latent.save import save
from kvviz.ui.latent.words import conditions, costs, counts_table, measured_table, verdict
from kvviz.ui.shell import Page
from kvviz.ui.text import plain

WAYS = {
    "expanded": (N_("Expand the latents"), N_("first K and V of every cached token, then attention as anywhere else")),
    "absorbed": (
        N_("Absorb $W_{UK}$ and $W_{UV}$"),
        N_("the query goes to the latents, and no K and no V is ever made"),
    ),
}


def show(page: Page) -> None:
    """The whole page."""
    asked = ask(page)
    if asked is None:
        return
    done = measure(page, asked)
    _answer(page, done)
    _side_by_side(page, asked)
    _curves(page, asked)
    save(page, asked, done)


def _answer(page: Page, done: Measured | None) -> None:
    t = page.t
    if done is None:
        return
    st.markdown(f"### {verdict(t, done.found)}")
    st.table(measured_table(t, done.found), hide_index=True)
    st.caption(plain(conditions(t, done)))


def _side_by_side(page: Page, asked: Asked) -> None:
    t = page.t
    st.subheader(t("What is computed from the cache in one decode step?"), anchor=False)
    st.markdown(legend(t, asked))
    stages = latent_stages(asked.sizes, asked.tokens)
    for place, (way, (title, meaning)) in zip(st.columns(2, gap="large"), WAYS.items(), strict=True):
        place.markdown(f"**{t(title)}**: {t(meaning)}")
        place.plotly_chart(
            latent_steps(stages, way, t, page.theme), theme=None, key=f"latent_{way}",
            alt=t("Products, shapes and multiply-adds: {way}").format(way=t(WAY_NAMES[way])),
        )  # fmt: skip
    for told in costs(t, asked):
        st.markdown(told)


def legend(t: Translate, asked: Asked) -> str:
    """What the letters mean and how large everything is that the step begins with."""
    sizes = asked.sizes
    return t(
        "In the cache, for all heads together: latents $c$, $T × r$ = {tokens} × {rank}, and rotary keys $k_R$, "
        "$T × d_R$ = {tokens} × {rotary}. New: the query of $n = 1$ token in every head, $q_N$ ($d_N$ = {nope}) and "
        "$q_R$ ($d_R$ = {rotary}). Every head has its own $W_{{UK}}$ ($r × d_N$) and $W_{{UV}}$ ($r × d_V$); "
        "$d_V$ = {value}."
    ).format(
        tokens=f"{asked.tokens:,}", rank=sizes.rank, rotary=sizes.rotary, nope=sizes.nope, value=sizes.value
    )  # fmt: skip


def _curves(page: Page, asked: Asked) -> None:
    t = page.t
    st.subheader(t("What does it cost as the text grows?"), anchor=False)
    log = st.toggle(t("Logarithmic"), True, key="latent_log", bind="query-params")
    frame = latent_counts(asked.sizes, groups=asked.groups, dtype=asked.cached)
    left, right = st.columns(2, gap="large")
    for place, column, told in (
        (left, "cached_bytes", t("**Kept**, one layer and one text")),
        (right, "multiply_adds", t("**Computed** in one decode step, one layer")),
    ):
        place.markdown(told)
        figure = latent_curves(frame, column, at=asked.tokens, log=log, t=t, theme=page.theme)
        place.plotly_chart(figure, theme=None, key=f"latent_{column}", alt=told.replace("*", ""))
    st.table(counts_table(t, asked, WAY_NAMES), hide_index=True)
    with st.expander(t("Formulas")):
        line = t("- {way}: numbers kept a token `{kept}`, multiply-adds `{adds}`")
        lines = [line.format(way=t(WAY_NAMES[way]), kept=kept, adds=adds) for way, (kept, adds) in FORMULAS.items()]
        st.markdown("\n".join(lines))
        st.markdown(
            t(
                "n new tokens (1 in decode), g groups. Counted from the cache to the heads' outputs: the projections "
                "of the new tokens, softmax and the output projection are the same in both ways and left out. MHA and "
                "GQA have the same query heads and head widths; expanding keeps nothing of what it makes, as "
                "transformers does it."
            )
        )
