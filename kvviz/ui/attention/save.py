"""Taking the analysis away: every picture's data, the whole as one HTML file, and the Python lines."""

import io
from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from kvviz.analysis.unattended import Rule
from kvviz.engine.knockout import Knockout
from kvviz.locale import N_
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.choices import Choices, as_python
from kvviz.ui.attention.recompute import kept
from kvviz.ui.attention.report import as_html
from kvviz.ui.attention.run import AttentionRun
from kvviz.ui.attention.takeaway import takeaway_desk
from kvviz.ui.shell import Page

_FRAMES = {
    "received": N_("What every token received, per head"),
    "heads": N_("Heads"),
    "sinks": N_("Sinks"),
    "never": N_("Entries never attended"),
    "unattended": N_("Unattended share of each layer"),
}


def save(page: Page, run: AttentionRun, layer: int, head: int, rule: Rule, queries: list[int]) -> None:
    """Download buttons, which build their files when they are pressed, and the code, by the page's settings."""
    t, summary, lang = page.t, run.summary, st.session_state.get("lang", "en")
    chosen = Choices(
        layer, head, st.session_state.get("epsilon", 0.3), st.session_state.get("diagonal", True), rule, queries
    )
    taken = _taken(summary)
    st.subheader(t("Download this analysis"), anchor=False)
    left, *others = st.columns([4, 2, 2.4, 2.6, 3.4], vertical_alignment="bottom")
    name = left.selectbox(t("Data"), list(_FRAMES), format_func=lambda one: t(_FRAMES[one]), key="save_data")
    files: list[tuple[str, str, str, str, Callable[[], str | bytes]]] = [
        ("csv", t("CSV"), f"kvviz-{name}.csv", "text/csv", lambda: frame(summary, name, chosen).to_csv(index=False)),
        ("parquet", t("Parquet"), f"kvviz-{name}.parquet", "application/vnd.apache.parquet",
         lambda: frame(summary, name, chosen).to_parquet(index=False)),
        ("npz", t("Map (npz)"), f"kvviz-layer{layer}-head{head}.npz", "application/octet-stream",
         lambda: as_npz(summary, layer, head)),
        ("html", t("All (HTML)"), "kvviz-attention.html", "text/html",
         lambda: as_html(t, page.theme, lang, summary, chosen, taken)),
    ]  # fmt: skip
    for place, (kind, label, file, mime, build) in zip(others, files, strict=True):
        place.download_button(
            label, build, file, mime, key=f"save_{kind}", on_click="ignore", icon=":material/download:", width="stretch"
        )
    told = t("The map is that of layer {layer}, head {head}: float32, query × key, NaN where a query may not look.")
    st.caption(told.format(layer=layer, head=head))
    with st.expander(t("The same in Python")):
        st.code(as_python(run.wanted.model, summary, chosen, taken), language="python")


def frame(summary: AttentionSummary, name: str, chosen: Choices) -> pd.DataFrame:
    """One of the tables, by the settings of the page."""
    if name == "sinks":
        return summary.sinks(chosen.epsilon, diagonal=chosen.diagonal)
    if name == "never":
        return summary.never_attended(*chosen.rule)
    if name == "unattended":
        return summary.unattended(*chosen.rule)
    return summary.heads() if name == "heads" else summary.received()


def as_npz(summary: AttentionSummary, layer: int, head: int) -> bytes:
    """The map of one head, its tokens and ids, as a compressed npz file."""
    file = io.BytesIO()
    array = kept(summary, ("map", layer, head), lambda: summary.map(layer, head))
    np.savez_compressed(file, attention=array, ids=np.array(summary.ids), tokens=np.array(summary.labels))
    return file.getvalue()


def _taken(summary: AttentionSummary) -> Knockout | None:
    run = takeaway_desk().run
    return run.result if run is not None and run.of(summary) else None
