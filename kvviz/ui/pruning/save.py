"""Taking a view of the Pruning page away: its tables, the whole as one HTML file, and the Python lines."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pandas as pd
import streamlit as st

from kvviz.locale import Translate
from kvviz.models.loading import LanguageModel
from kvviz.ui.shell import Page


class Table(NamedTuple):
    """A table: what people call it, and what makes it."""

    title: str
    make: Callable[[], pd.DataFrame]


def save(page: Page, view: str, tables: Mapping[str, Table], html: Callable[[], str], python: str) -> None:
    """Download buttons, which build their files when they are pressed, and the code.

    `tables` by the names that their files and buttons carry (`<view>_csv_<name>`).
    """
    t = page.t
    st.subheader(t("Download this view"), anchor=False)
    places = st.columns(max(4, len(tables) + 1))
    for place, (name, table) in zip(places, tables.items(), strict=False):
        place.download_button(
            t("{table} (CSV)").format(table=table.title), lambda table=table: table.make().to_csv(index=False),
            f"kvviz-{view}-{name}.csv", "text/csv",
            key=f"{view}_csv_{name}", on_click="ignore", icon=":material/download:", width="stretch",
        )  # fmt: skip
    places[len(tables)].download_button(
        t("All (HTML)"), html, f"kvviz-{view}.html", "text/html",
        key=f"{view}_html", on_click="ignore", icon=":material/download:", width="stretch",
    )  # fmt: skip
    with st.expander(t("The same in Python")):
        st.code(python, language="python")


def model_facts(t: Translate, lm: LanguageModel, tokens: int) -> list[tuple[str, str]]:
    """What a saved file says of the model and of the text's length."""
    return [
        (t("Model"), lm.title),
        (t("Weights"), lm.source + (". " + t(lm.note) if lm.note else "")),
        (t("Revision"), lm.revision),
        (t("Number format"), str(lm.dtype).removeprefix("torch.")),
        (t("Text"), t("{count} tokens").format(count=f"{tokens:,}")),
    ]
