"""Taking results away: tables as CSV, everything as one HTML file, and the Python lines."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pandas as pd
import streamlit as st

from kvviz.ui.shell import Page


class Table(NamedTuple):
    """A table to download: its name for people, and what makes it."""

    title: str
    make: Callable[[], pd.DataFrame]


def downloads(page: Page, key: str, tables: Mapping[str, Table], html: Callable[[], str], python: str) -> None:
    """Buttons that build their files when they are pressed, and the code."""
    t = page.t
    st.subheader(t("Download this comparison"), anchor=False)
    left, middle, right, _ = st.columns([4, 2, 2, 3], vertical_alignment="bottom")
    name = left.selectbox(t("Data"), list(tables), format_func=lambda one: t(tables[one].title), key=f"{key}_data")
    middle.download_button(
        t("CSV"), lambda: tables[name].make().to_csv(index=False), f"kvviz-{name}.csv", "text/csv",
        key=f"{key}_csv", on_click="ignore", icon=":material/download:", width="stretch",
    )  # fmt: skip
    right.download_button(
        t("All (HTML)"), html, "kvviz-prefix.html", "text/html",
        key=f"{key}_html", on_click="ignore", icon=":material/download:", width="stretch",
    )  # fmt: skip
    with st.expander(t("The same in Python")):
        st.code(python, language="python")
