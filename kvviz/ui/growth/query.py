"""What the query is for: the shapes of a step's attention, and the proof that K and V stay as they are."""

import pandas as pd
import streamlit as st

from kvviz.engine.witness import LayerVerdict, Witness
from kvviz.geometry.layers import query_heads
from kvviz.locale import Translate
from kvviz.records import Step
from kvviz.ui.growth.run import GrowthRun
from kvviz.words import LAYER_KINDS


def query(t: Translate, run: GrowthRun, step: Step) -> None:
    """Explain Q, K and V with the shapes of `step`, and offer to check the cache bit for bit."""
    st.subheader(t("What is the query for, and why is it not cached?"), anchor=False)
    if step.calls:
        _shapes(t, run, step)
    else:
        st.caption(t("This model computes its attention itself, so its shapes cannot be shown."))
    told = t(
        "The new token's query asks one question: which of the stored keys matter to me? Its answer, the weighted sum "
        "of the values, goes on to the next layer, and nobody ever asks for that query again. Its key and value are "
        "what every later token will look at, so those two stay."
    )
    st.markdown(told)
    ask = t("Check: are K and V of earlier tokens still the same bits?")
    if st.button(ask, key="check", icon=":material/fingerprint:"):
        for witness in run.witnesses:
            _verdict(t, run, witness)


def _shapes(t: Translate, run: GrowthRun, step: Step) -> None:
    names = [t(LAYER_KINDS.get(kind, kind)) for kind in (run.shapes[call.layer].kind for call in step.calls)]
    table = {
        t("layer (at step {step})").format(step=step.index): [
            t("{layer} ({kind})").format(layer=call.layer, kind=name)
            for call, name in zip(step.calls, names, strict=True)
        ],
        t("Q: used once, thrown away"): [_times(call.query) for call in step.calls],
        t("K: looked at"): [_times(call.key) for call in step.calls],
        t("V: summed up"): [_times(call.value) for call in step.calls],
    }
    st.dataframe(pd.DataFrame(table), hide_index=True, key="shapes")
    told = t("Heads × tokens × numbers. {heads} query heads share {kv} KV heads; only K and V are stored.")
    st.caption(told.format(heads=query_heads(run.lm.config), kv=step.calls[0].key[0]))


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{side:,}" for side in shape)


def _verdict(t: Translate, run: GrowthRun, witness: Witness) -> None:
    seen = run.steps[-1].seen
    verdicts: list[LayerVerdict] = witness.compare(run.cache, seen)
    held = [verdict for verdict in verdicts if verdict.held]
    same = sum(bool(verdict.key_equal and verdict.value_equal) for verdict in held)
    told = t(
        "Token {position} ({label}), copied after {then} tokens, compared after {now}: "
        "K and V are the same bits in {same} of the {held} layers that still hold it."
    ).format(
        position=witness.position,
        label=run.text().tokens[witness.position].label,
        then=witness.seen,
        now=seen,
        same=same,
        held=len(held),
    )
    gone = sum(shape.kv_heads > 0 for shape in run.shapes) - len(held)  # those that dropped it in the prefill included
    if gone:
        told += " " + t("{gone} layers no longer hold it: it has left their window.").format(gone=gone)
    # st.text, not markdown: the label is the model's text
    st.text(("✓ " if same == len(held) else "✗ ") + told)
