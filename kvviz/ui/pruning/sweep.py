"""Budget sweep: what each policy's loss comes to as its budget shrinks."""

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from kvviz.figures.sweep import perplexity_by_budget
from kvviz.locale import Translate
from kvviz.sweeping import SHARES
from kvviz.ui.pruning.example import PROSE
from kvviz.ui.pruning.side_arms import ARMS, CONTROL, FULL, choose_arms
from kvviz.ui.pruning.side_loss import only_voters
from kvviz.ui.pruning.sweep_save import take_away
from kvviz.ui.pruning.sweep_work import Swept, Wanted, run_sweep
from kvviz.ui.pruning.task import Progress, Turn, result_of, run_or_stop
from kvviz.ui.pruning.text import ask_text
from kvviz.ui.shell import Page

_DEFAULT = ["window", "sinks_window", "h2o"]
_NOTHING = "–"


def show(page: Page) -> None:
    """The whole view."""
    t, wanted = page.t, _ask(page)
    lm = page.resident.model if page.resident is not None else None

    def work(progress: Progress, turn: Turn) -> Swept:
        return run_sweep(lm, wanted, progress, turn)

    task = run_or_stop(page, "sweep", wanted, None if wanted is None else work, t("Sweep"))
    if task is None:
        told = t(
            "Press Sweep: the model reads the text once with the full cache, then {count} times under each policy, "
            "with budgets from {least} % to 100 % of the text. Stop keeps what is finished."
        )
        st.caption(told.format(count=len(SHARES), least=f"{100 * SHARES[0]:g}"))
        return
    found = result_of(page, task, wanted)
    if found is not None:
        _picture(page, found)
        take_away(page, found, figure(page, found, zoomed()), table(t, found), notes(t, found))


def _ask(page: Page) -> Wanted | None:
    prompt = ask_text(page, "sweep", PROSE)
    chosen = choose_arms(page.t, "sweep", _DEFAULT)
    if prompt is None:
        return None
    arms = tuple((arm, ARMS[arm].make(budget=0.2)) for arm in chosen)
    return Wanted(page.resident.key, prompt.text, prompt.ids, arms)


def zoomed() -> bool:
    """Whether small differences are looked at."""
    return st.session_state.get("sweep_zoom", False)


def _picture(page: Page, found: Swept) -> None:
    """The lines, and the numbers under them."""
    t = page.t
    told = t("The axis ends where half of the policies still fit; what loses more is cut off.")
    st.toggle(t("Zoom in on small differences"), key="sweep_zoom", help=told)
    st.plotly_chart(
        figure(page, found, zoomed()), theme=None, key="sweep_lines",
        alt=t("Perplexity of each policy against the share of the text that may stay"),
    )  # fmt: skip
    if not found.whole:
        st.info(t("Stopped: what was finished is shown."))
    st.table(table(t, found), hide_index=True)
    for sentence in notes(t, found):
        st.caption(sentence)


def figure(page: Page, found: Swept, zoom: bool) -> go.Figure:
    """The picture."""
    names = {arm: page.t(ARMS[arm].title) for arm, _ in found.wanted.arms}
    return perplexity_by_budget(found.frame(), found.full.perplexity, names, page.t, page.theme, zoom)


def table(t: Translate, found: Swept) -> pd.DataFrame:
    """Perplexities, one row a policy and one column a share; a dash where there is no reading."""
    frame = found.frame()
    grid = frame.pivot(index="arm", columns="share", values="perplexity")
    shares = [share for share in SHARES if share in grid.columns]
    arms = [arm for arm, _ in found.wanted.arms if arm in grid.index]
    shown = {t("perplexity"): [t(FULL.title), *(t(ARMS[arm].title) for arm in arms)]}
    for share in shares:
        dense = f"{found.full.perplexity:,.2f}" if share == 1 else ""
        values = [grid.loc[arm, share] for arm in arms]
        shown[f"{100 * share:g} %"] = [dense, *(_NOTHING if pd.isna(value) else f"{value:,.2f}" for value in values)]
    return pd.DataFrame(shown)


def control(t: Translate) -> str:
    """What random choice is there for."""
    told = t(
        "Random is the control: any token may go but the first {count} and the newest. What a policy gains over it is "
        "what its idea has earned."
    )
    return told.format(count=ARMS[CONTROL].make(budget=0.2).sinks)


def notes(t: Translate, found: Swept) -> list[str]:
    """What the numbers mean, and where they are not what they seem."""
    tokens, half = len(found.wanted.ids), len(found.wanted.ids) // 2
    told = [
        t(
            "Scored at every budget are the same {count} tokens: those of the second half, positions {first} to {last} "
            "of a text of {tokens}, each predicted from the true tokens before it. A large budget begins to evict "
            "only within that half, and at 100 % nothing is evicted. Budgets count the newest token."
        ).format(count=f"{found.full.scored:,}", first=f"{half + 1:,}", last=f"{tokens - 1:,}", tokens=f"{tokens:,}")
    ]
    once = t(
        "{policy} cuts once, at the end of the prompt, for which the first half stands here; what comes later "
        "all stays, so at the end it holds more than the share says, {stored} tokens at {percent} %."
    )
    for index, (arm, policy) in enumerate(found.wanted.arms):
        if policy.evicts == "prefill":
            of_arm = [point for point in found.points[1:] if point.arm == index]
            at = next((point for point in of_arm if point.share == 0.2), of_arm[-1] if of_arm else None)
            if at is not None:
                facts = {"stored": f"{at.stored:,}", "percent": f"{100 * at.share:g}"}
                told.append(once.format(policy=t(ARMS[arm].title), **facts))
            full_of_voters = [
                each.policy for each in of_arm if each.evicted and each.policy.recent >= each.policy.budget
            ]
            if full_of_voters:
                told.append(only_voters(t, arm, max(full_of_voters, key=lambda each: each.budget)))
    if any(_NOTHING in row for row in table(t, found).to_numpy().tolist()):
        told.append(
            t("–: no reading. The budget has no room for the tokens the policy protects, or the sweep stopped.")
        )
    told.append(control(t))
    return told
