"""Cache growth: a real model fills its KV cache token by token."""

import streamlit as st

from kvviz.ui.shell import open_page

page = open_page("growth")

from kvviz.ui.growth.arithmetic import arithmetic
from kvviz.ui.growth.compare import comparison
from kvviz.ui.growth.headroom import headroom
from kvviz.ui.growth.inputs import ask, run_or_stop
from kvviz.ui.growth.live import show_run
from kvviz.ui.growth.query import query
from kvviz.ui.growth.save import save

wanted = ask(page)
run = run_or_stop(page, wanted)
if run is None:
    st.caption(page.t("Press Run: the model reads the prompt at once, then writes one token at a time."))
    st.stop()

at = show_run(page, run, wanted)
if at is not None:
    arithmetic(page.t, run)
    query(page.t, run, run.steps[at])
    comparison(page, run)
    headroom(page.t, run)
    save(page.t, run)
