"""The pieces of the streaming view: its pictures and its tables, on the page and in the file to take away."""

import pandas as pd
import plotly.graph_objects as go

from kvviz.analysis.losses import perplexity
from kvviz.analysis.streaming import after_first, paper_frame, running_frame
from kvviz.figures.streaming import running_loss, sinks_and_paper
from kvviz.locale import N_, Translate
from kvviz.ui.pruning.streaming_inputs import MODES, arm
from kvviz.ui.pruning.streaming_words import drawn, number
from kvviz.ui.pruning.streaming_work import Streamed, shelf
from kvviz.ui.shell import Page

MODE_NAMES = {
    "relative": N_("cache-relative positions"),
    "original": N_("original positions"),
    "naive": N_("naive positions"),
}


def names(t: Translate, found: Streamed) -> dict[str, str]:
    """The lines of the picture for people."""
    sinks = drawn(found)
    budget = found.wanted.budget
    return {
        "full": t("full cache"),
        "window": t("window of {budget}").format(budget=f"{budget:,}"),
        "sinks": t("{sinks} sinks + window of {rest}").format(sinks=sinks, rest=f"{budget - (sinks or 0):,}"),
    }


def picture(page: Page, found: Streamed, window: int) -> go.Figure:
    """Running loss against position."""
    t, sinks = page.t, drawn(found)
    losses = {"full": found.full, "window": found.by_sinks[0]}
    if sinks is not None:
        losses["sinks"] = found.by_sinks[sinks]
    marks = {}
    if not found.inactive:
        marks[found.wanted.budget + 1] = t("first eviction")
    if found.lm.context is not None and len(found.full) > found.lm.context:
        marks[found.lm.context] = t("trained length: {context}").format(context=f"{found.lm.context:,}")
    return running_loss(running_frame(losses, window), names(t, found), window, marks, t, page.theme)


def sinks_figure(page: Page, found: Streamed, measured: pd.DataFrame) -> go.Figure:
    """Bars and the paper's lines."""
    full = perplexity(found.full[after_first(found.wanted.budget) :])
    return sinks_and_paper(measured, paper_frame(), full, page.t, page.theme)


def sinks_table(t: Translate, found: Streamed, measured: pd.DataFrame) -> pd.DataFrame:
    """One row a sink count: measured, and the paper's four models."""
    paper = paper_frame().pivot(index="sinks", columns="model", values="perplexity")[
        list(paper_frame()["model"].unique())
    ]
    joined = paper.join(measured.set_index("sinks")["perplexity"], how="outer")
    here = joined.pop("perplexity")
    rows = {t("sinks"): joined.index.astype(str), t("measured here"): [_cell(value) for value in here]}
    return pd.DataFrame(rows | {model: [_cell(value) for value in joined[model]] for model in joined})


def _cell(value: float) -> str:
    return "–" if pd.isna(value) else number(value)


def modes_table(t: Translate, found: Streamed) -> pd.DataFrame:
    """One row a position mode that is known of this text and cache, one column a sink count."""
    wanted, rows = found.wanted, []
    counts = sorted(found.by_sinks)
    for mode in MODES:
        known = {count: shelf().get(wanted, arm(count, wanted.budget, mode)) for count in counts}
        if all(known[count] is None for count in counts if count) or found.inactive:
            continue
        skip = after_first(wanted.budget)
        cells = {
            t("{count} sinks").format(count=count): "–" if nll is None else number(perplexity(nll[skip:]))
            for count, nll in known.items()
        }
        rows.append({t("positions"): t(MODE_NAMES[mode])} | cells)
    return pd.DataFrame(rows)
