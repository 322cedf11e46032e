"""Taking the streaming view away: its numbers, its pictures in one file, and the Python lines that repeat it."""

import numpy as np
import pandas as pd
import streamlit as st

from kvviz.analysis.streaming import sinks_frame
from kvviz.figures.report import Part, document
from kvviz.models.tokens import tokens
from kvviz.ui.pruning.save import Table, save
from kvviz.ui.pruning.streaming_parts import modes_table, picture, sinks_figure, sinks_table
from kvviz.ui.pruning.streaming_words import verdict
from kvviz.ui.pruning.streaming_work import Streamed
from kvviz.ui.shell import Page


def take_away(page: Page, found: Streamed, window: int) -> None:
    """Buttons and code."""
    t = page.t
    tables = {
        "losses": Table(t("Losses"), lambda: losses_frame(found)),
        "sinks": Table(t("Sinks"), lambda: sinks_frame(found.by_sinks, found.wanted.budget)),
    }
    lang = st.session_state.get("lang", "en")
    save(page, "streaming", tables, lambda: as_html(page, found, window, lang), as_python(found))


def losses_frame(found: Streamed) -> pd.DataFrame:
    """policy, position, token_id, token, nll: one row a policy and scored token, as `kvviz.evaluate` has them."""
    labels = [token.label for token in tokens(found.lm.tokenizer, found.wanted.ids)]
    runs = {"Full()": found.full} | {str(policy): found.by_sinks[count] for count, policy in found.wanted.arms}
    columns = {
        "position": np.arange(1, len(found.wanted.ids)),
        "token_id": found.wanted.ids[1:],
        "token": labels[1:],
    }
    return pd.concat([pd.DataFrame({"policy": name, **columns, "nll": nll}) for name, nll in runs.items()])


def as_html(page: Page, found: Streamed, window: int, lang: str) -> str:
    """The whole view as one file."""
    t, lm, wanted = page.t, found.lm, found.wanted
    facts = [
        (t("Model"), lm.title),
        (t("Weights"), lm.source + (". " + t(lm.note) if lm.note else "")),
        (t("Revision"), lm.revision),
        (t("Number format"), str(lm.dtype).removeprefix("torch.")),
        (t("Text"), t("{count} tokens").format(count=f"{len(wanted.ids):,}")),
        (t("Policies"), ", ".join(str(policy) for _, policy in wanted.arms)),
    ]
    parts = [Part(t("Running loss"), [*verdict(t, found), picture(page, found, window)])]
    measured = sinks_frame(found.by_sinks, wanted.budget)
    if not measured.empty:
        contents = [sinks_figure(page, found, measured), sinks_table(t, found, measured)]
        parts.append(Part(t("How many sinks does it take?"), contents))
    modes = modes_table(t, found)
    if len(modes) > 1:
        parts.append(Part(t("Do positions matter?"), [modes]))
    return document(t("The StreamingLLM picture"), facts, parts, lang, page.theme)


def as_python(found: Streamed) -> str:
    """The lines that repeat it in a notebook."""
    model = found.wanted.model
    arms = [f"    kvviz.policies.{policy}," for _, policy in found.wanted.arms]
    return "\n".join(
        [
            "import numpy as np",
            "import kvviz",
            "",
            f"lm = kvviz.load({model.name!r}, device={model.device!r}, dtype={model.dtype!r})",
            "text = kvviz.texts.alice()  # or your own",
            f"ids = kvviz.encode(lm, text, past_context=True).ids[:{len(found.wanted.ids)}]",
            "policies = [",
            *arms,
            "]",
            "losses = kvviz.evaluate(lm, ids, policies, past_context=True)",
            f"after = losses[losses.position > {found.wanted.budget + 1}]  # the first that miss anything",
            'np.exp(after.groupby("policy").nll.mean())',
        ]
    )
