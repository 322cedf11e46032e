"""Taking the page away: its numbers as CSV, the whole as HTML, the Python that repeats it."""

import streamlit as st

from kvviz.figures.latent import WAY_NAMES, latent_curves, latent_steps
from kvviz.figures.report import Part, document
from kvviz.geometry.latent import latent_stages
from kvviz.geometry.latentcounts import latent_counts
from kvviz.ui.latent.inputs import Asked
from kvviz.ui.latent.measure import Measured
from kvviz.ui.latent.words import conditions, costs, counts_table, measured_table, verdict
from kvviz.ui.pruning.save import Table
from kvviz.ui.pruning.save import save as save_tables
from kvviz.ui.shell import Page


def save(page: Page, asked: Asked, done: Measured | None) -> None:
    """Download buttons and the code."""
    t = page.t
    tables = {
        "counts": Table(t("Counts"), lambda: latent_counts(asked.sizes, groups=asked.groups, dtype=asked.cached)),
        "steps": Table(t("Steps"), lambda: latent_stages(asked.sizes, asked.tokens)),
    }
    if done is not None:
        tables["measured"] = Table(t("Measured"), done.found.frame)
    save_tables(page, "latent", tables, lambda: as_html(page, asked, done), as_python(asked, done))


def as_html(page: Page, asked: Asked, done: Measured | None) -> str:
    """The page as one file."""
    t, theme, sizes = page.t, page.theme, asked.sizes
    facts = [
        (
            t("Sizes"),
            f"H = {sizes.heads}, r = {sizes.rank}, d_N = {sizes.nope}, d_R = {sizes.rotary}, d_V = {sizes.value}",
        ),
        (t("Tokens"), f"T = {asked.tokens:,}"),
        (t("Groups"), f"g = {asked.groups}"),
        (t("Cache in"), asked.cached),
    ]
    stages, curves = latent_stages(sizes, asked.tokens), latent_counts(sizes, groups=asked.groups, dtype=asked.cached)
    grown = [
        latent_curves(curves, each, at=asked.tokens, t=t, theme=theme) for each in ("cached_bytes", "multiply_adds")
    ]
    parts = [
        Part(t("Expanded"), [latent_steps(stages, "expanded", t, theme)]),
        Part(t("Absorbed"), [latent_steps(stages, "absorbed", t, theme)]),
        Part(t("Costs"), [*(line.replace("**", "") for line in costs(t, asked)), counts_table(t, asked, WAY_NAMES)]),
        Part(t("As the text grows"), grown),
    ]  # fmt: skip
    if done is not None:
        said = [verdict(t, done.found).replace("**", ""), measured_table(t, done.found), conditions(t, done)]
        parts.insert(0, Part(t("Measured"), said))
    return document(t("Latent attention (MLA)"), facts, parts, st.session_state.get("lang", "en"), theme)


def as_python(asked: Asked, done: Measured | None) -> str:
    """The lines that repeat it in a notebook."""
    sizes = asked.sizes
    lines = ["import kvviz", ""]
    if done is not None and asked.source == "loaded":
        made = done.asked
        lines += [
            f"lm = kvviz.load({done.lm.name!r})",
            f"found = kvviz.latent_of(lm, {made.text!r}, layer={made.layer}, dtype={made.measured!r})",
            "found.frame()",
        ]
    elif done is not None:
        measured, tokens = done.found.sizes, done.found.decode.tokens
        lines += [f"found = kvviz.latent(kvviz.{measured}, {tokens}, dtype={asked.measured!r})", "found.frame()"]
    lines += [
        f"sizes = kvviz.{sizes}",
        f"kvviz.latent_counts(sizes, [{asked.tokens}], groups={asked.groups}, dtype={asked.cached!r})",
    ]
    return "\n".join(lines)
