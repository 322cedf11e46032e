"""Taking a watched run away: steps and evictions as CSV, the whole as one HTML file, the Python lines."""

import numpy as np
import streamlit as st

from kvviz.analysis.runs import steps_frame
from kvviz.figures.report import Part, Strip, document
from kvviz.figures.timeline import cache_against_full, token_timeline
from kvviz.locale import Translate
from kvviz.palette import Theme
from kvviz.ui.pruning.policy import policy_name, rules
from kvviz.ui.pruning.save import Table, save
from kvviz.ui.pruning.watch_run import WatchRun, full_frame, life
from kvviz.ui.pruning.watch_why import reasons_of
from kvviz.ui.shell import Page

_ROWS = 400  # of a table in the HTML file


def save_run(page: Page, run: WatchRun, layer: int, head: int) -> None:
    """Download buttons and the code."""
    t, lang = page.t, st.session_state.get("lang", "en")
    tables = {
        "steps": Table(t("Steps"), lambda: steps_frame(run.steps)),
        "evictions": Table(t("Evictions"), lambda: run.evictions().frame()),
    }
    save(page, "watch", tables, lambda: as_html(t, page.theme, lang, run, layer, head), as_python(run, layer, head))


def as_html(t: Translate, theme: Theme, lang: str, run: WatchRun, layer: int, head: int) -> str:
    """The run after its last step, with the chosen head's timeline."""
    now, lm, labels = run.steps[-1], run.lm, run.text(len(run.steps)).labels
    share = np.zeros(len(labels))
    share[: now.seen] = run.held_share(now)
    place = t("layer {layer}, KV head {head}").format(layer=layer, head=head)
    lost = reasons_of(run, layer, head).replace(np.inf, np.nan)
    lost.insert(1, "token", [labels[position] for position in lost["position"]])
    timeline = token_timeline(life(run, layer, head, range(now.seen)), labels, len(run.prompt.ids), t=t, theme=theme)
    against_full = cache_against_full(steps_frame(run.steps), full_frame(run, now.seen), t, theme)
    told = t("All tokens that layer {layer}, KV head {head} lost").format(layer=layer, head=head)
    parts = [
        Part(t("How much is that of a full cache?"), [against_full]),
        Part(t("The text, shaded by how many heads still hold each token"), [Strip(labels, share, "k")]),
        Part(t("When did which token go?"), [place, timeline]),
        Part(told, [lost.head(_ROWS)], folded=True),
    ]
    facts = [
        (t("Model"), lm.title),
        (t("Weights"), lm.source + (". " + t(lm.note) if lm.note else "")),
        (t("Revision"), lm.revision),
        (t("Number format"), str(lm.dtype).removeprefix("torch.")),
        (t("Policy"), policy_name(run.wanted.policy, t)),
        (t("In Python"), f"kvviz.policies.{run.wanted.policy}"),
        (t("What it does"), " ".join(rules(run.wanted.policy, t))),
        (t("Tokens seen"), f"{now.seen:,}"),
        (t("Stored"), f"{now.stored:,}"),
    ]
    return document(t("A policy at work"), facts, parts, lang, theme)


def as_python(run: WatchRun, layer: int, head: int) -> str:
    """The lines that repeat a run in a notebook."""
    wanted = run.wanted
    key = wanted.model
    options = f"max_new_tokens={wanted.max_new_tokens}, chat={wanted.chat}, policy=policy"
    lines = [
        "import kvviz",
        "from kvviz.analysis.evictions import from_steps",
        "from kvviz.analysis.reasons import reasons",
        "from kvviz.geometry.layers import layer_shapes",
        "",
        f"lm = kvviz.load({key.name!r}, device={key.device!r}, dtype={key.dtype!r})",
        f"prompt = {wanted.text!r}",
        f"policy = kvviz.policies.{wanted.policy}",
        f"steps = list(kvviz.stream(lm, prompt, {options}))",
        "kvviz.frame(steps)",
        "evictions = from_steps(policy, steps, layer_shapes(lm.config))",
        "evictions.frame()",
        f"reasons(evictions, {layer}, {head})",
    ]
    return "\n".join(lines)
