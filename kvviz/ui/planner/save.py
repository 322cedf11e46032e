"""Taking a plan away: its layers and curves as CSV, the whole as HTML, the Python that repeats it."""

import streamlit as st

from kvviz.figures.plan import kinds_stacked, layer_bars, three_counts
from kvviz.figures.report import Part, document
from kvviz.locale import Translate
from kvviz.palette import Theme
from kvviz.ui.planner.inputs import Asked
from kvviz.ui.shell import Page
from kvviz.units import size


def save(page: Page, asked: Asked) -> None:
    """Download buttons and the code."""
    t, planned, lang = page.t, asked.plan, st.session_state.get("lang", "en")
    st.subheader(t("Download this plan"), anchor=False)
    files = [
        ("layers", t("Layers (CSV)"), "kvviz-layers.csv", "text/csv", lambda: planned.layers.to_csv(index=False)),
        ("curve", t("Curve (CSV)"), "kvviz-curve.csv", "text/csv", lambda: planned.curve().to_csv(index=False)),
        ("html", t("All (HTML)"), "kvviz-plan.html", "text/html", lambda: as_html(t, page.theme, lang, asked)),
    ]
    for place, (key, label, name, mime, build) in zip(st.columns(len(files)), files, strict=True):
        place.download_button(
            label, build, name, mime, key=f"plan_save_{key}", on_click="ignore", icon=":material/download:",
            width="stretch",
        )  # fmt: skip
    with st.expander(t("The same in Python")):
        st.code(as_python(asked), language="python")


def as_html(t: Translate, theme: Theme, lang: str, asked: Asked) -> str:
    """The plan as one file."""
    planned = asked.plan
    facts = [
        (t("Model"), planned.title),
        (t("Numbers from: {source}").format(source="").strip().rstrip(":"), planned.source),
        (t("Tokens of context"), f"{planned.tokens:,}"),
        (t("Users"), f"{planned.batch:,}"),
        (t("Cache in"), planned.dtype.name),
        (t("Cache"), size(planned.total_bytes)),
    ]
    parts = [
        Part(t("Checked"), [planned.checked.sentence(t)]),
        Part(t("Layers"), [layer_bars(planned.layers, t, theme), planned.layers]),
        Part(t("Context"), [kinds_stacked(planned.kinds_curve(), t=t, theme=theme)]),
        Part(t("Three ways to count"), [three_counts(planned.curve(), t=t, theme=theme)]),
        Part(t("GPUs"), [planned.fits(asked.gpus, reserve=asked.reserve)]),
    ]
    return document(t("Memory plan"), facts, parts, lang, theme)


def as_python(asked: Asked) -> str:
    """The lines that repeat the plan in a notebook."""
    planned = asked.plan
    options = f"tokens={planned.tokens}, batch={planned.batch}, dtype={planned.dtype.name!r}"
    return "\n".join(
        [
            "import kvviz",
            "",
            f"plan = kvviz.plan({asked.name!r}, {options}, weights_dtype={planned.weights_dtype.name!r})",
            "plan.total_bytes, plan.least_bytes, plan.vllm_bytes, plan.checked",
            "plan.layers",
            f"plan.fit({asked.gpu!r}, {asked.gpus}, reserve={asked.reserve})",
        ]
    )
