"""Home: what kvviz is, a real model at work, and the way to each page."""

import streamlit as st

from kvviz.ui.shell import open_page

page = open_page("home")

from kvviz.ui.home import picture, ways

t = page.t
st.markdown(
    t(
        "A language model reads and writes one token after another. For each it stores a **key** and a **value** in "
        "every layer, so that later tokens can look back without computing anything twice. This store is the **KV "
        "cache**. Nothing here is drawn from a formula alone: a real model runs, and the figures are read from its "
        "tensors."
    )
)
picture(page)
st.subheader(t("Look closer"), anchor=False)
ways(t)
