"""Taking a sweep away: its numbers, its picture in one file, and the Python lines that repeat it."""

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from kvviz.figures.report import Part, document
from kvviz.sweeping import points_frame
from kvviz.ui.pruning.save import Table, model_facts, save
from kvviz.ui.pruning.sweep_work import Swept
from kvviz.ui.shell import Page


def take_away(page: Page, found: Swept, figure: go.Figure, table: pd.DataFrame, notes: list[str]) -> None:
    """Buttons and code."""
    t, lang = page.t, st.session_state.get("lang", "en")
    tables = {"points": Table(t("Perplexities"), lambda: points_frame(found.points))}

    def html() -> str:
        parts = [Part(t("Perplexity against budget"), [figure, table, *notes])]
        return document(t("Budget sweep"), model_facts(t, found.lm, len(found.wanted.ids)), parts, lang, page.theme)

    save(page, "sweep", tables, html, as_python(found))


def as_python(found: Swept) -> str:
    """The lines that repeat it in a notebook."""
    model = found.wanted.model
    lines = [
        "import kvviz",
        "",
        f"lm = kvviz.load({model.name!r}, device={model.device!r}, dtype={model.dtype!r})",
        f"text = {found.wanted.text!r}",
        "policies = [",
        *(f"    kvviz.policies.{policy}," for _, policy in found.wanted.arms),
        "]",
        "kvviz.sweep(lm, text, policies)",
    ]
    return "\n".join(lines)
