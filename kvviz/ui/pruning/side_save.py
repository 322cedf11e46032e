"""Taking a comparison away: its numbers, its pictures in one file, and the Python lines that repeat it."""

import pandas as pd
import streamlit as st

from kvviz.analysis.compared import agreement_frame, lost_frame
from kvviz.figures.policies import agreement_matrix, lost_by_layer
from kvviz.figures.report import Part, document
from kvviz.ui.pruning.save import Table, model_facts, save
from kvviz.ui.pruning.side_loss import WINDOW, idle, late, loss_figure, names, table
from kvviz.ui.pruning.side_lost import lost_table
from kvviz.ui.pruning.side_texts import cards
from kvviz.ui.pruning.side_work import Compared
from kvviz.ui.shell import Page


def take_away(page: Page, found: Compared) -> None:
    """Buttons and code."""
    t = page.t
    tables = {
        "losses": Table(t("Losses"), found.evaluation.frame),
        "policies": Table(t("Policies"), found.evaluation.perplexities),
        "lost": Table(t("Attention"), lambda: said(found, lost_frame(found.lost, found.evictions))),
        "agreement": Table(t("Agreement"), lambda: said(found, agreement_frame(found.evictions))),
    }
    lang = st.session_state.get("lang", "en")
    save(page, "side", tables, lambda: as_html(page, found, lang), as_python(found))


def said(found: Compared, frame: pd.DataFrame) -> pd.DataFrame:
    """Arms of this page as the Python that makes their policies."""
    makers = {arm: str(policy) for arm, policy in found.wanted.arms}
    columns = {"arm": "policy", "other": "other_policy"}
    return frame.replace({column: makers for column in columns if column in frame}).rename(columns=columns)


def as_html(page: Page, found: Compared, lang: str) -> str:
    """The whole comparison as one file."""
    t, called = page.t, names(page.t, found)
    window, zoom = st.session_state.get("side_window", WINDOW), st.session_state.get("side_zoom", False)
    parts = [
        Part(t("Loss beyond the full cache's"), [loss_figure(page, found, window, zoom), *idle(t, found)]),
        Part(t("What each policy costs"), [table(t, found), *late(t, found)]),
    ]
    if found.written:
        written = [f"{card.title} ({card.note}): {card.same}⟦{card.rest}⟧" for card in cards(t, found)]
        told = t("⟦ ⟧: what differs from the full cache's text.")
        parts.append(Part(t("What does the model write next?"), [*written, told]))
    lost = lost_frame(found.lost, found.evictions)
    if not lost.empty:
        contents = [lost_by_layer(lost, called, t, page.theme), lost_table(t, found, lost)]
        parts.append(Part(t("How much of the attention falls on tokens that were gone?"), contents))
    agree = agreement_frame({arm: each for arm, each in found.evictions.items() if each.count})
    if len(agree) > 1:
        parts.append(Part(t("Do policies keep the same tokens?"), [agreement_matrix(agree, called, t, page.theme)]))
    facts = model_facts(t, found.evaluation.lm, len(found.wanted.ids))
    facts.append((t("Policies"), ", ".join(str(policy) for _, policy in found.wanted.arms)))
    return document(t("Policies side by side"), facts, parts, lang, page.theme)


def as_python(found: Compared) -> str:
    """The lines that repeat it in a notebook."""
    wanted = found.wanted
    model = wanted.model
    lines = [
        "import kvviz",
        "from kvviz.analysis.evictions import agreement",
        "from kvviz.engine.lost import Gone, lost_attention",
        "",
        f"lm = kvviz.load({model.name!r}, device={model.device!r}, dtype={model.dtype!r})",
        f"text = {wanted.text!r}",
        "policies = [",
        *(f"    kvviz.policies.{policy}," for _, policy in wanted.arms),
        "]",
        "run = kvviz.compare_policies(lm, text, policies)",
        "print(run.perplexities())",
        "dropped = run.evictions[1:]",
        "lost = lost_attention(lm, run.ids, [Gone(each.layers, each.gone) for each in dropped])",
        "for policy, each, shares in zip(policies, dropped, lost):",
        "    if each.first is not None:",
        "        print(policy, shares[:, each.first + 1 :].mean(), agreement(each, dropped[-1], each.tokens - 1))",
    ]
    if wanted.new:
        lines += [
            "for policy in [None, *policies]:",
            f'    print(policy, "".join(step.text for step in kvviz.stream(lm, text, {wanted.new}, policy=policy)))',
        ]
    return "\n".join(lines)
