"""Cache growth: a real model fills its KV cache token by token."""

import streamlit as st

from kvviz.ui.growth.compare import comparison
from kvviz.ui.growth.inputs import ask, run_or_stop
from kvviz.ui.growth.live import show_run
from kvviz.ui.growth.save import save
from kvviz.ui.growth.story import arithmetic, headroom, query
from kvviz.ui.shell import open_page

page = open_page("growth")
wanted = ask(page)
run = run_or_stop(page, wanted)
if run is None:
    st.caption(page.t("Press Run: the model reads the prompt at once, then writes one token at a time."))
    st.stop()

show_run(page, run, wanted)
if run.steps and not run.job.running:
    arithmetic(page.t, run)
    query(page.t, run, run.steps[-1])
    comparison(page, run)
    headroom(page.t, run)
    save(page.t, run)
