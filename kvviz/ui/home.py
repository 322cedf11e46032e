"""The Home page's picture: one short run of the chosen model, made once and shown to every visitor."""

import threading

import numpy as np
import streamlit as st

from kvviz.locale import Translate
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import encode
from kvviz.ui.components.cache_grid import cache_grid
from kvviz.ui.components.token_strip import token_strip
from kvviz.ui.growth.run import GrowthRun, Wanted
from kvviz.ui.house import Resident
from kvviz.ui.server import shared_turns
from kvviz.ui.shell import PAGES, Page
from kvviz.ui.text import failure, plain
from kvviz.units import size

_TEXT = "Once upon a time, in a small village by the sea, there lived a girl who"
_NEW_TOKENS = 32

_starting = threading.Lock()  # two visitors who come at once see the same run


def _demonstration(resident: Resident, lm: LanguageModel) -> GrowthRun:
    """The run for one model; it goes on in its own thread whoever comes and goes."""
    with _starting:
        if resident.demonstration is None:
            wanted = Wanted(resident.key, _TEXT, max_new_tokens=_NEW_TOKENS)
            resident.demonstration = GrowthRun(wanted, lm, encode(lm, _TEXT), shared_turns())
        return resident.demonstration


def picture(page: Page) -> None:
    """The model at work in one sentence and one picture; empty until it is loaded."""
    lm = page.resident.model if page.resident else None
    if lm is None:
        st.caption(page.t("The picture appears here as soon as the model is loaded."))
        return
    run = _demonstration(page.resident, lm)
    if run.job.error is not None:
        st.error(failure(run.job.error, page.t), icon=":material/error:")
        if st.button(page.t("Try again"), key="demonstrate"):
            page.resident.demonstration = None
            st.rerun()
    st.fragment(_picture, run_every=0.25 if run.job.running else None)(page.t, run, run.job.running)


def _picture(t: Translate, run: GrowthRun, working: bool) -> None:
    if working and not run.job.running:
        st.rerun()
    steps = list(run.steps)
    if not steps:
        return
    now, text = steps[-1], run.text(len(steps) - 1)
    told = t(
        "{model} has read {read} tokens and written {written}. "
        "Its cache now holds {tokens} tokens in {layers} layers: {size}."
    )
    st.markdown(
        told.format(
            model=plain(run.lm.title),
            read=len(steps[0].fed),
            written=len(steps),
            tokens=now.stored,
            layers=len(now.layers),
            size=size(now.cache_bytes),
        )
    )
    token_strip(text.tokens, origins=text.origins, key="home_strip", t=t)
    keys, values = (
        np.concatenate([getattr(step, name) for step in steps], axis=1) for name in ("key_norms", "value_norms")
    )
    cache_grid(
        keys, values, [layer.stored for layer in now.layers], kinds=[layer.kind for layer in now.layers],
        prefill=len(steps[0].fed), labels=[token.label for token in text.tokens[: now.seen]],
        capacity=len(run.prompt.ids) + _NEW_TOKENS - 1, live=working, key="home_grid", t=t,
    )  # fmt: skip


def ways(t: Translate) -> None:
    """A card for each other page: its name, and the question it answers."""
    for entry in PAGES[1:]:
        with st.container(border=True):
            st.page_link(f"pages/{entry.name}.py", label=t(entry.title), icon=entry.icon)
            st.markdown(t(entry.question))
