"""With and without the cache: times, speed-up, tokens computed, and whether the text is the same."""

import streamlit as st

from kvviz.analysis.recompute import (
    comparison_frame,
    computed_with_cache,
    computed_without_cache,
    first_difference,
    speed_up,
)
from kvviz.figures.growth import with_and_without
from kvviz.ui.growth.run import GrowthRun
from kvviz.ui.shell import Page

# logits, by bytes of a number: one pass over a text and a cached step round differently, in float32 by about 1e-5,
# in bfloat16 by 0.1 and more
_NEAR_TIE = {4: 0.01, 2: 0.5}


def comparison(page: Page, run: GrowthRun) -> None:
    """Both arms of a finished run; a hint at the switch when the second has not been asked for."""
    t = page.t
    st.subheader(t("What does the cache save?"), anchor=False)
    prompt, new = len(run.prompt.ids), len(run.steps)
    cached, anew = computed_with_cache(prompt, new), computed_without_cache(prompt, new)
    counts = t(
        "This run computed {cached} tokens with the cache. Without it the whole text is computed again for each new "
        "token: {anew}. Starting from a single token it is n against n(n + 1)/2: without the cache 5,050 for 100 "
        "tokens, 500,500 for 1,000."
    )
    st.markdown(counts.format(cached=f"{cached:,}", anew=f"{anew:,}"))
    if not run.recomputed:
        st.caption(t("Switch on “Also without cache” above and run again to measure it."))
        return
    frame = comparison_frame(run.steps, run.recomputed)
    factor = speed_up(frame)
    left, right = st.columns([3, 1])
    left.plotly_chart(
        with_and_without(frame, t, page.theme), theme=None, key="with_and_without",
        alt=t("Milliseconds per token with and without the cache"),
    )  # fmt: skip
    with right.container(key="speed_up"):
        st.metric(t("Measured speed-up"), "–" if factor is None else f"{factor:.1f}×")
        st.caption(t("over {count} new tokens, prefill included").format(count=len(frame)))
    _same_text(page, run)


def _same_text(page: Page, run: GrowthRun) -> None:
    t = page.t
    frame = comparison_frame(run.steps, run.recomputed)
    step = first_difference(frame)
    if step is None:
        st.success(t("The text is the same, token for token: the cache changes the work, not the result."))
        return
    margin = frame.loc[frame["step"] == step, "margin_logits"].item()
    told = t("The texts differ from token {step} on, where the best two tokens were {margin} logits apart.")
    near = t("That is a near tie: rounding in {dtype} decides it, not the cache.")
    line = told.format(step=step + 1, margin=f"{margin:.4f}")
    if margin <= _NEAR_TIE.get(run.lm.dtype.itemsize, 0.01):
        st.info(line + " " + near.format(dtype=str(run.lm.dtype).removeprefix("torch.")))
    else:
        st.error(line)
