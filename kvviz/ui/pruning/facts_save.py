"""Taking the fact probe away: its numbers, its pictures in one file, and the Python lines that repeat it."""

import streamlit as st

from kvviz.analysis.facts import by_depth, by_policy
from kvviz.figures.facts import held_and_known, known_shares
from kvviz.figures.report import Part, document
from kvviz.ui.pruning.facts_words import all_answers, table, verdict
from kvviz.ui.pruning.facts_work import Probed
from kvviz.ui.pruning.save import Table, save
from kvviz.ui.shell import Page


def take_away(page: Page, found: Probed) -> None:
    """Buttons and code."""
    t = page.t
    tables = {
        "answers": Table(t("Answers"), lambda: found.answers),
        "policies": Table(t("Policies"), lambda: by_policy(found.answers)),
        "depths": Table(t("Depths"), lambda: by_depth(found.answers)),
    }
    lang = st.session_state.get("lang", "en")
    save(page, "facts", tables, lambda: as_html(page, found, lang), as_python(found))


def as_html(page: Page, found: Probed, lang: str) -> str:
    """The whole probe as one file."""
    t, lm, names = page.t, found.lm, found.names(page.t)
    facts = [
        (t("Model"), lm.title),
        (t("Weights"), lm.source + (". " + t(lm.note) if lm.note else "")),
        (t("Revision"), lm.revision),
        (t("Number format"), str(lm.dtype).removeprefix("torch.")),
        (t("Text"), t("about {count} tokens").format(count=f"{found.wanted.tokens:,}")),
        (t("Policies"), ", ".join(str(policy) for _, policy in found.wanted.arms)),
    ]
    shares = known_shares(by_policy(found.answers), names, found.arms, t, page.theme)
    parts = [
        Part(
            t("Is a fact still there when it is asked for?"),
            [*verdict(t, found), held_and_known(by_depth(found.answers), names, t, page.theme)],
        ),
        Part(t("How sure is that?"), [shares, table(t, found)]),
        Part(t("Every answer"), [all_answers(t, found)], folded=True),
    ]
    return document(t("Where pruning hurts"), facts, parts, lang, page.theme)


def as_python(found: Probed) -> str:
    """The lines that repeat it in a notebook."""
    wanted = found.wanted
    return "\n".join(
        [
            "import kvviz",
            "from kvviz.analysis.facts import by_depth, by_policy",
            "",
            f"lm = kvviz.load({wanted.model.name!r}, device={wanted.model.device!r}, dtype={wanted.model.dtype!r})",
            "policies = [",
            *(f"    kvviz.policies.{policy}," for _, policy in wanted.arms),
            "]",
            f"answers = kvviz.probe_facts(lm, policies, tokens={wanted.tokens}, rounds={wanted.rounds})",
            "by_policy(answers)",
        ]
    )
