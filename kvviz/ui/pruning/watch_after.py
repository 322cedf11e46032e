"""A run under a policy that has ended: any step of it again, the life of every token, and why each one went."""

import streamlit as st

from kvviz.analysis.runs import steps_frame
from kvviz.analysis.timeline import MOST_CELLS
from kvviz.figures.timeline import cache_against_full, token_timeline
from kvviz.locale import Translate
from kvviz.ui.attention.positions import position_input
from kvviz.ui.pruning.policy import card
from kvviz.ui.pruning.watch_live import grid, strip
from kvviz.ui.pruning.watch_run import Wanted, WatchRun, full_frame, life
from kvviz.ui.pruning.watch_save import save_run
from kvviz.ui.pruning.watch_status import done_so_far, numbers, status
from kvviz.ui.pruning.watch_why import reasons_of, sentences, table
from kvviz.ui.shell import Page


def after(page: Page, run: WatchRun, wanted: Wanted | None) -> None:
    """The whole of a run that is no longer at work."""
    status(page.t, run, run.steps, wanted)
    if run.steps:
        st.fragment(_look)(page, run)


def _look(page: Page, run: WatchRun) -> None:
    """One step, one head, one token: choosing another draws only this again."""
    t, at = page.t, len(run.steps) - 1
    if at:
        told = t("Step 0 reads the whole prompt.")
        at = st.slider(t("Back to step"), 0, at, at, key="watch_step", help=told)
    steps = run.steps[: at + 1]
    numbers(t, run, steps)
    done_so_far(t, run, steps[-1])
    text_place = st.container()
    layer, head, token = _pick(t, run)
    with text_place:
        strip(page, run, steps, working=False, selected=token)
    with st.container(key="watch_why"):
        # st.text, not markdown: the labels are the model's text
        st.text("\n".join(sentences(t, run, layer, head, token, steps[-1].seen - 1)))
    grid(page, run, steps, working=False, selected=token if token < steps[-1].seen else None)
    st.markdown(t("**How much is that of a full cache?**"))
    bytes_figure = cache_against_full(steps_frame(steps), full_frame(run, steps[-1].seen), t, page.theme)
    told = t("Cache bytes under the policy and of a full cache, against tokens seen")
    st.plotly_chart(bytes_figure, theme=None, key="watch_bytes", alt=told)
    _timeline(page, run, layer, head, token, steps[-1].seen - 1)
    table(t, run, layer, head)
    card(page, run.wanted.policy)
    save_run(page, run, layer, head)


def _pick(t: Translate, run: WatchRun) -> tuple[int, int, int]:
    """Layer and KV head that are asked, and the token that is asked about."""
    layer_place, head_place, token_place = st.columns([3, 2, 2], vertical_alignment="bottom", gap="medium")
    layers, heads = list(run.layers), run.gone.shape[1]
    if st.session_state.get("watch_layer") not in layers:
        st.session_state["watch_layer"] = layers[len(layers) // 2]
    layer = layer_place.select_slider(t("Layer"), layers, key="watch_layer", persist_state="session")
    if st.session_state.get("watch_head", heads) >= heads:
        st.session_state["watch_head"] = 0
    label = t("KV head")
    head = head_place.selectbox(label, range(heads), key="watch_head", persist_state="session", disabled=heads == 1)
    lost = reasons_of(run, layer, head)["position"]
    count = len(run.prompt.ids) + len(run.steps)
    first = int(lost.iloc[0]) if len(lost) else 0
    return layer, head, position_input(token_place, t("Token"), count, key="watch_token", default=first)


def _timeline(page: Page, run: WatchRun, layer: int, head: int, token: int, now: int) -> None:
    t, count = page.t, run.steps[-1].seen
    st.subheader(t("When did which token go?"), anchor=False)
    told = t(
        "Layer {layer}, KV head {head}. A row is the life of one token, a column the token being read. Until the "
        "budget is full all stay."
    )
    st.caption(told.format(layer=layer, head=head))
    tokens = range(count)
    if count > MOST_CELLS:
        first, last = st.slider(t("Tokens"), 0, count - 1, (0, count - 1), key=f"watch_range_{count}")
        tokens = range(first, last + 1)
    shown, labels = life(run, layer, head, tokens), run.text(len(run.steps)).labels
    figure = token_timeline(shown, labels, len(run.prompt.ids), now, token, t, page.theme)
    told = t("Cached tokens by tokens read: kept as sink, as recent or by score, and evicted")
    st.plotly_chart(figure, theme=None, key="watch_timeline", alt=told)
    if shown.cell != (1, 1):
        told = t("A cell stands for {tokens} tokens while {steps} are read and shows what most of them are.")
        st.caption(told.format(tokens=shown.cell[0], steps=shown.cell[1]))
