"""Taking tokens away: what later tokens lose when nobody may look at them any more."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pandas as pd
import streamlit as st

from kvviz.analysis.knockout import losses_frame, perplexity
from kvviz.engine.knockout import Knockout, take_away
from kvviz.figures.knockout import loss_change
from kvviz.locale import Translate
from kvviz.models.tokens import tokens
from kvviz.summary import AttentionSummary
from kvviz.ui.desk import Desk
from kvviz.ui.jobs import Job
from kvviz.ui.server import shared_turns
from kvviz.ui.shell import Page
from kvviz.ui.text import failure
from kvviz.ui.turns import Turns


class TakeAwayRun:
    """Two passes over a text, with and without some of its tokens; `result` is there when the job has ended well."""

    def __init__(self, summary: AttentionSummary, positions: tuple[int, ...], since: int, turns: Turns) -> None:
        self.lm, self.ids = summary.lm, summary.ids
        self.positions = positions
        self.since = since
        self.passes = 0  # begun
        self.result: Knockout | None = None
        self._turns = turns
        self.job = Job(self._work).start()

    @property
    def ahead(self) -> int:
        """How many other runs are served before this one's next pass."""
        return self._turns.place(self)

    def of(self, summary: AttentionSummary) -> bool:
        """Whether this is the same text under the same model."""
        return self.lm is summary.lm and self.ids == summary.ids

    def _work(self, job: Job) -> None:
        @contextmanager
        def turn() -> Iterator[None]:
            with self._turns.take(self, job.stop):
                self.passes += 1
                yield

        self.result = take_away(self.lm, self.ids, self.positions, since=self.since, turn=turn)


@st.cache_resource(scope="session", on_release=Desk.leave, show_spinner=False)
def takeaway_desk() -> Desk[TakeAwayRun]:
    """This visitor's place for taking tokens away; cleared when the tab closes."""
    return Desk()


def takeaway(page: Page, summary: AttentionSummary) -> None:
    """The choice, the two buttons, and what came of them."""
    t, run = page.t, takeaway_desk().run
    if run is not None and not run.of(summary):
        run.job.stop.set()  # its text is not on the screen any more
        run = None
    working = run is not None and run.job.running
    st.subheader(t("What if a token were not there to look at?"), anchor=False)
    chosen = _choose(t, summary)
    since = _since(t, len(summary.ids))
    left, right, _ = st.columns([1, 1, 3])
    if left.button(
        t("Take it away"), key="take_away", icon=":material/visibility_off:", width="stretch", disabled=not chosen
    ):
        takeaway_desk().begin(lambda: TakeAwayRun(summary, chosen, since, shared_turns()))
        st.rerun()
    if right.button(t("Stop"), key="take_away_stop", icon=":material/stop:", width="stretch", disabled=not working):
        run.job.cancel()
        st.rerun()
    if run is None:
        st.caption(t("Hides them from all later tokens in every layer and head, and compares the model's predictions."))
    elif working:
        st.fragment(_watch, run_every=0.25)(t, run)
    else:
        _ended(page, summary, run, (chosen, since))


def _choose(t: Translate, summary: AttentionSummary) -> tuple[int, ...]:
    count = len(summary.ids)
    if "take_away_positions" in st.session_state:  # some may lie past the end of a new, shorter text
        still = [position for position in st.session_state["take_away_positions"] if position < count]
        st.session_state["take_away_positions"] = still
    else:
        st.session_state["take_away_positions"] = [strongest_sink(summary)]
    chosen = st.multiselect(t("Tokens to take away, by position"), range(count), key="take_away_positions")
    if chosen:
        st.text(_named(summary, sorted(chosen)))  # not markdown: the labels are the model's text
    return tuple(sorted(chosen))


def _named(summary: AttentionSummary, positions: Sequence[int], most: int = 20) -> str:
    """Positions with their tokens in one line, the first `most` of them."""
    names = [f"{position} “{summary.labels[position]}”" for position in positions[:most]]
    return ", ".join(names + ["…"] * (len(positions) > most))


def _since(t: Translate, count: int) -> int:
    """The first query that may not look any more. By default some way into the text, where it tells most."""
    if count < 2:
        return 0
    key, start = "take_away_since", min(32, count // 2)
    st.session_state[key] = min(st.session_state.get(key, start), count - 1)
    since = st.number_input(t("Hidden from this position on"), 0, count - 1, key=key)
    st.caption(
        t(
            "Hidden from 0 on, a sink is replaced at once: the next token then sees only itself, as the sink did, and "
            "takes its place. Hidden later, nobody can take its place any more."
        )
    )
    return since


def strongest_sink(summary: AttentionSummary) -> int:
    """The position that is a sink in most heads, 0 where none is."""
    found = summary.sinks()
    return 0 if found.empty else int(found["position"].iloc[0])


def _watch(t: Translate, run: TakeAwayRun) -> None:
    if not run.job.running:
        st.rerun()
    if run.ahead:
        told = t("Waiting for a turn: {count} ahead of you").format(count=run.ahead)
    elif run.passes < 2:
        told = t("Pass 1 of 2: the text as it is")
    else:
        told = t("Pass 2 of 2: without what was taken away")
    st.progress(max(0, run.passes - 1) / 2, told)


def _ended(page: Page, summary: AttentionSummary, run: TakeAwayRun, chosen: tuple) -> None:
    t = page.t
    if run.job.error is not None:
        st.error(failure(run.job.error, t), icon=":material/error:")
    elif run.result is None:
        st.info(t("Stopped; nothing was compared."), icon=":material/stop_circle:")
    else:
        if chosen != (run.positions, run.since):
            st.warning(t("What is shown belongs to another choice of tokens."), icon=":material/history:")
        _result(page, summary, run.result)


def _result(page: Page, summary: AttentionSummary, found: Knockout) -> None:
    t = page.t
    frame = losses_frame(found.nll, found.nll_without, summary.labels)
    with st.container(key="take_away_result"):
        told = t("Taken away: {tokens}, from position {since} on")
        st.text(told.format(tokens=_named(summary, found.positions), since=found.since))
        st.text(loss_sentence(t, found))
    if not frame.empty:
        figure = loss_change(frame, found.positions, t, page.theme)
        st.plotly_chart(figure, theme=None, key="loss_change", alt=t("Change of the loss of every token, in nats"))
    st.markdown("**" + t("The likeliest next tokens, with it and without") + "**")
    st.dataframe(next_tokens(t, summary, found), hide_index=True, key="take_away_next")


def loss_sentence(t: Translate, found: Knockout) -> str:
    """The mean change of the loss, and the perplexity with and without, of what was predicted without the keys."""
    if not len(found.nll):
        return t("A text of one token has no token to predict: its perplexity is not defined.")
    before, after = found.nll[found.since :], found.nll_without[found.since :]
    if not len(before):
        return t("No token is predicted after position {since}.").format(since=found.since)
    told = t("Loss changes by {change} nats on average; perplexity {before} → {after} over {count} scored tokens.")
    return told.format(
        change=f"{float((after - before).mean()):+.4f}",
        before=f"{perplexity(before):,.2f}",
        after=f"{perplexity(after):,.2f}",
        count=f"{len(before):,}",
    )


def next_tokens(t: Translate, summary: AttentionSummary, found: Knockout) -> pd.DataFrame:
    """Rank by rank: the next token and its probability, as the text is and without what was taken away."""

    def label(token: int) -> str:
        return tokens(summary.lm.tokenizer, [token])[0].label

    before, after = found.top, found.top_without
    return pd.DataFrame(
        {
            t("rank"): range(1, len(before) + 1),
            t("with it"): [label(token) for token, _ in before],
            t("probability with it"): [probability for _, probability in before],
            t("without it"): [label(token) for token, _ in after],
            t("probability without it"): [probability for _, probability in after],
        }
    )
