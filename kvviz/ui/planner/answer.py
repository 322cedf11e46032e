"""The plan: the answer in words, three ways to count, every layer, and what was measured."""

import streamlit as st

from kvviz.errors import Refused
from kvviz.figures.plan import COUNTS, kinds_stacked, layer_bars, three_counts
from kvviz.geometry.plan import Plan
from kvviz.locale import N_, Translate
from kvviz.ui.growth.run import desk as growth_desk
from kvviz.ui.planner.inputs import Asked, ask_model, ask_sizes
from kvviz.ui.planner.save import save
from kvviz.ui.shell import Page
from kvviz.ui.text import plain, sentence
from kvviz.units import size

_MEANINGS = {
    "least_bytes": N_("What the next token's queries look at: a window of W is W tokens."),
    "total_bytes": N_("Tensors between two steps: a window of W holds W − 1."),
    "vllm_bytes": N_("Whole blocks of 16 tokens, pages of one size for all layers."),
}


def show(page: Page) -> None:
    """The view."""
    chosen = ask_model(page)
    if chosen is None:
        return
    asked = ask_sizes(page, *chosen)
    t, planned = page.t, asked.plan
    words(page, asked)
    _totals(t, planned)
    checked(t, planned)
    _measured(page, planned)
    left, right = st.columns(2, gap="large")
    left.markdown(t("**Which layers hold it?** Each bar is one layer; its formula is on the bar."))
    left.plotly_chart(
        layer_bars(planned.layers, t, page.theme), theme=None, key="plan_layers", alt=t("Bytes of every layer")
    )
    right.markdown(t("**How does it grow with the text?** Stacked by layer kind, as transformers stores it."))
    right.plotly_chart(
        kinds_stacked(planned.kinds_curve(), t=t, theme=page.theme),
        theme=None,
        key="plan_kinds",
        alt=t("Bytes by layer kind against context"),
    )
    with st.expander(t("Three ways to count, against the length of the text")):
        figure = three_counts(planned.curve(), t=t, theme=page.theme)
        st.plotly_chart(figure, theme=None, key="plan_counts", alt=t("Least, transformers and vLLM"))
    with st.expander(t("Every layer with its formulas")):
        st.dataframe(planned.layers, hide_index=True, key="plan_table")
    save(page, asked)


def words(page: Page, asked: Asked) -> None:
    """The answer in a sentence or two."""
    t, planned = page.t, asked.plan
    one = planned.at(batch=1)
    told = t("One user at {tokens} tokens needs **{size}**").format(
        tokens=f"{planned.tokens:,}", size=size(one.total_bytes)
    )
    if planned.batch > 1:
        told += t("; {users} users need **{size}**").format(users=f"{planned.batch:,}", size=size(planned.total_bytes))
    st.markdown(f"### {told}.")
    try:
        fit = planned.fit(asked.gpu, asked.gpus, reserve=asked.reserve)
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return
    cards = t("{count} × {gpu}").format(count=asked.gpus, gpu=asked.gpu) if asked.gpus > 1 else asked.gpu
    if fit.weights_bytes is None:
        text = t("How large the weights are is not known; without them **{users}** such users would fit on {cards}.")
    elif fit.room_bytes <= 0:
        text = t("The weights alone ({weights} a card) do not fit on {cards} with {reserve} % kept free.")
    elif fit.longest_tokens is None:
        text = t(
            "**{users}** fit beside the weights ({weights} a card) on {cards} with {reserve} % kept free, "
            "and one user's text may be of any length."
        )
    else:
        text = t(
            "**{users}** fit beside the weights ({weights} a card) on {cards} with {reserve} % kept free; "
            "one user alone could have {longest} tokens."
        )
    st.markdown(
        text.format(
            users=f"{fit.users:,}",
            weights=size(fit.weights_bytes or 0),
            cards=plain(cards),
            reserve=round(100 * asked.reserve),
            longest=f"{fit.longest_tokens or 0:,}",
        )
    )
    if planned.context and planned.tokens > planned.context:
        told = t("The model was made for texts of at most {context} tokens.").format(context=f"{planned.context:,}")
        st.info(told, icon=":material/straighten:")


def _totals(t: Translate, planned: Plan) -> None:
    first, *places = st.columns(4)
    first.metric(
        t("Bytes a token"),
        f"{planned.bytes_per_token:,}",
        help=t("Of one user, while every layer still grows; {later} once every window is full.").format(
            later=f"{planned.bytes_per_token_beyond_windows:,}"
        ),
    )
    for place, (column, meaning) in zip(places, _MEANINGS.items(), strict=True):
        told = t(meaning)
        place.metric(_raised(t(COUNTS[column])), size(getattr(planned, column)), help=told)


def _raised(text: str) -> str:
    return text[:1].upper() + text[1:]


def checked(t: Translate, planned: Plan) -> None:
    """What the real modelling code says, and remarks."""
    icon = {"equal": ":material/verified:", "differs": ":material/error:"}.get(
        planned.checked.status, ":material/info:"
    )
    lines = [f"{icon} {planned.checked.sentence(t)}", *(plain(note.sentence(t)) for note in planned.notes)]
    st.caption("  \n".join([*lines, t("Numbers from: {source}").format(source=plain(planned.source))]))


def _measured(page: Page, planned: Plan) -> None:
    """The last run of Cache growth beside the plan, when it is a run of this model."""
    t, run = page.t, growth_desk().run
    if run is None or not run.steps or run.lm.title != planned.title:
        return
    step = run.steps[-1]
    predicted = planned.at(tokens=step.seen, batch=1, dtype=str(run.lm.dtype).removeprefix("torch.")).total_bytes
    st.success(
        t(
            "Measured in the last run of Cache growth: {measured} bytes after {seen} tokens; the plan says {planned}."
        ).format(measured=f"{step.cache_bytes:,}", seen=f"{step.seen:,}", planned=f"{predicted:,}"),
        icon=":material/straighten:",
    )
