"""Attention: sinks, tokens nobody looks at, and maps that hold at any length."""

import streamlit as st

from kvviz.ui.shell import open_page

page = open_page("attention")

from kvviz.ui.attention.contribution import contribution
from kvviz.ui.attention.heatmap import heatmap
from kvviz.ui.attention.inputs import ask, run_or_stop
from kvviz.ui.attention.live import show_run
from kvviz.ui.attention.never import never
from kvviz.ui.attention.overtime import over_time
from kvviz.ui.attention.save import save
from kvviz.ui.attention.sinks import sinks
from kvviz.ui.attention.strip import strip
from kvviz.ui.attention.takeaway import takeaway
from kvviz.ui.attention.wall import wall

wanted = ask(page)
run = run_or_stop(page, wanted)
if run is None:
    st.caption(
        page.t("Press Measure: the model reads the text once, and every head's attention is measured on the way.")
    )
    st.stop()

summary = show_run(page, run, wanted)
if summary is not None:
    layer, head = sinks(page, summary)
    strip(page, summary, layer, head, run.wanted.origins)
    heatmap(page, summary, layer, head)
    wall(page, summary, layer, head)
    rule, queries = never(page, summary, layer, head)
    over_time(page, summary, layer, run.wanted.origins)
    contribution(page, summary, layer, head)
    takeaway(page, summary)
    save(page, run, layer, head, rule, queries)
