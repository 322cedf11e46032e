"""Taking a run away: its numbers as CSV and JSON, and the Python lines that repeat it."""

import json
from dataclasses import asdict

import pandas as pd
import streamlit as st

from kvviz.analysis.runs import layers_frame, steps_frame
from kvviz.locale import Translate
from kvviz.ui.growth.run import GrowthRun, Wanted


def save(t: Translate, run: GrowthRun) -> None:
    """Download buttons and the code."""
    st.subheader(t("Download this run"), anchor=False)
    left, middle, right, _ = st.columns([2, 2, 2, 1])
    steps = list(run.steps)
    left.download_button(
        t("Steps (CSV)"), lambda: steps_frame(steps).to_csv(index=False), "kvviz-steps.csv", "text/csv", key="csv",
        on_click="ignore", icon=":material/download:", width="stretch",
    )  # fmt: skip
    middle.download_button(
        t("Layers (CSV)"), lambda: layers_frame(steps).to_csv(index=False), "kvviz-layers.csv", "text/csv",
        key="csv_layers", on_click="ignore", icon=":material/download:", width="stretch",
    )  # fmt: skip
    right.download_button(
        t("Everything (JSON)"), lambda: as_json(run), "kvviz-run.json", "application/json", key="json",
        on_click="ignore", icon=":material/download:", width="stretch",
    )  # fmt: skip
    with st.expander(t("The same in Python")):
        st.code(as_python(run.wanted), language="python")


def as_json(run: GrowthRun) -> str:
    """Settings, prompt ids and labels, every step and every layer of it, as one JSON document."""
    wanted, lm, steps = run.wanted, run.lm, list(run.steps)
    prompt = zip(run.prompt.tokens, run.prompt.origins, strict=True)
    document = {
        "settings": asdict(wanted) | {"model": wanted.model._asdict()},
        "model": {"title": lm.title, "revision": lm.revision, "dtype": str(lm.dtype), "device": str(lm.device)},
        "prompt": [{"id": token.id, "label": token.label, "origin": origin} for token, origin in prompt],
        "steps": _rows(steps_frame(steps)),
        "layers": _rows(layers_frame(steps)),
        "without_cache": _rows(steps_frame(run.recomputed)),
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _rows(frame: pd.DataFrame) -> list[dict]:
    return json.loads(frame.to_json(orient="records"))


def as_python(wanted: Wanted) -> str:
    """The lines that repeat a run in a notebook."""
    sampling = (
        f", temperature={wanted.temperature}, top_p={wanted.top_p}, seed={wanted.seed}" if wanted.temperature else ""
    )
    options = f"max_new_tokens={wanted.max_new_tokens}, chat={wanted.chat}{sampling}"
    lines = [
        "import kvviz",
        "",
        f"lm = kvviz.load({wanted.model.name!r}, device={wanted.model.device!r}, dtype={wanted.model.dtype!r})",
        f"prompt = {wanted.text!r}",
        f"steps = list(kvviz.stream(lm, prompt, {options}))",
        "kvviz.frame(steps)",
    ]
    if wanted.compare:
        lines += [f"again = list(kvviz.stream(lm, prompt, {options}, use_cache=False))", "kvviz.frame(again)"]
    return "\n".join(lines)
