"""What the section about unattended keys shows, as sentences and figures; the saved report shows the same."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from kvviz.analysis.attention import OUT_OF_WINDOW, TOO_NEW
from kvviz.analysis.unattended import Rule, Unattended, pooled
from kvviz.figures.unattended import query_rows, unattended_map
from kvviz.locale import Translate
from kvviz.palette import Theme
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.recompute import rows
from kvviz.units import size


def sentences(t: Translate, summary: AttentionSummary, found: Unattended, rule: Rule) -> list[str]:
    """Entries, tokens and bytes that nobody looked at, and what cannot be told."""
    frame, counts, by_token = summary.unattended(*rule), found.counts, found.by_token
    judged = counts["never"] + counts["attended"]
    entries = t("{count} of {total} entries ({share}) were never attended by the queries seen so far.")
    tokens = t("{count} of {total} tokens were attended by no head at all, by the queries seen so far.")
    stored = t("{count} of {total} K/V entries were read by none of the query heads that share them: {size} of cache.")
    rest = t("Not counted: {new} entries too new to tell, {out} out of window.")
    return [
        entries.format(
            count=f"{counts['never']:,}",
            total=f"{judged:,}",
            share=f"{counts['never'] / judged:.1%}" if judged else "–",
        ),
        tokens.format(count=f"{(by_token == 1).sum():,}", total=f"{np.isfinite(by_token).sum():,}"),
        stored.format(
            count=f"{frame['unattended_entries'].sum():,}",
            total=f"{frame['entries'].sum():,}",
            size=size(int(frame["unattended_bytes"].sum())),
        ),
        rest.format(new=f"{counts['too_new']:,}", out=f"{counts['out_of_window']:,}"),
    ]


def map_figure(t: Translate, theme: Theme, summary: AttentionSummary, found: Unattended) -> tuple[go.Figure, str]:
    """Layers by keys, and the note that belongs under it ("" where every key has a column of its own)."""
    small, cell = pooled(found)
    numbers = [layer.layer for layer in summary.layers]
    new, out = small.state == TOO_NEW, small.state == OUT_OF_WINDOW
    figure = unattended_map(small.share, new, out, numbers, summary.labels, cell, t, theme)
    told = t("Each cell stands for {count} neighbouring keys: the mean share of those that can be told.")
    return figure, told.format(count=cell) if cell > 1 else ""


def query_figure(
    t: Translate,
    theme: Theme,
    summary: AttentionSummary,
    layer: int,
    head: int,
    positions: Sequence[int],
    rule: Rule,
) -> go.Figure:
    """The queries at `positions` over the same keys, with the rule's threshold in each."""
    weights = rows(summary, layer, positions)[head]
    choices = next(each for each in summary.layers if each.layer == layer).choices
    lines = [rule.threshold / choices[at] if rule.rule == "relative" else rule.threshold for at in positions]
    return query_rows(weights, positions, lines, summary.labels, t, theme)
