"""Two prompts: what the second takes from the first one's cache, what that saves, and what ends it."""

import streamlit as st

from kvviz.ui.prefix.cheat import cheat
from kvviz.ui.prefix.distances import distance_map, equal_tokens
from kvviz.ui.prefix.numbers import counts, measured
from kvviz.ui.prefix.pair_inputs import ask
from kvviz.ui.prefix.pair_save import save
from kvviz.ui.prefix.pair_work import comparing
from kvviz.ui.prefix.strips import strips
from kvviz.ui.shell import Page
from kvviz.ui.task import result_of, run_or_stop


def show(page: Page) -> None:
    """The whole view. Strips and counts follow the texts at once; what a model has to run for waits for Compare."""
    t = page.t
    wanted, parting = ask(page)
    work = None if parting is None else comparing(page.resident.model, parting)
    task = run_or_stop(page, "prefix_pair", wanted, work, t("Compare"))
    if parting is not None:
        strips(page, parting)
        counts(page, parting)
    if task is None:
        st.caption(
            t("Press Compare: the model reads both prompts, and the second one twice, from the cache and from nothing.")
        )
        return
    result = result_of(page, task, wanted)
    if result is None:
        return
    measured(page, result)
    distance_map(page, result)
    equal_tokens(page, task.wanted, result)
    cheated = cheat(page, task.wanted, result)
    save(page, task.wanted, result, cheated)
