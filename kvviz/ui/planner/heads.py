"""MHA, GQA and MQA drawn for the chosen model, with the bytes under each."""

import streamlit as st

from kvviz.figures.heads import head_groups
from kvviz.locale import N_
from kvviz.ui.planner.inputs import ask_model
from kvviz.ui.shell import Page
from kvviz.units import size

_NAMES = {
    "mha": N_("MHA: every query head has its own K and V"),
    "gqa": N_("GQA: groups of query heads share K and V"),
    "mqa": N_("MQA: all query heads share one K and V"),
}


def show(page: Page) -> None:
    """The view."""
    t = page.t
    chosen = ask_model(page)
    if chosen is None:
        return
    base = chosen[0]
    shape = next((one for one in base.shapes if one.kv_heads and one.query_heads), None)
    if shape is None:
        st.info(t("No layer of this model keeps K and V for query heads. Choose another model."))
        return
    latent = shape.kv_heads == 1 and shape.head_widths != (shape.key_width, shape.value_width)
    divisors = [count for count in range(1, shape.query_heads + 1) if shape.query_heads % count == 0]
    actual = shape.kv_heads if not latent else None
    middle = actual if actual not in (None, 1, shape.query_heads) else divisors[len(divisors) // 2]
    groups = st.select_slider(t("K and V heads in GQA"), divisors, middle, key="heads_groups")
    for place, (kind, name) in zip(st.columns(3, gap="large"), _NAMES.items(), strict=True):
        kv_heads = {"mha": shape.query_heads, "gqa": groups, "mqa": 1}[kind]
        held = base.what_if(kind, groups=groups)
        mark = t(" (this model)") if kv_heads == actual else ""
        place.markdown(f"**{t(name)}**{mark}")
        told = t("{queries} query heads, {kv} K and V heads").format(queries=shape.query_heads, kv=kv_heads)
        place.plotly_chart(
            head_groups(shape.query_heads, kv_heads, t, page.theme), theme=None, key=f"heads_{kind}", alt=told
        )
        place.metric(told, size(held.bytes_per_token), help=t("Of the whole model, for one token."))
    if latent:
        st.info(
            t("This model caches one latent for all heads instead (MLA): {size} a token.").format(
                size=size(base.bytes_per_token)
            )
        )
    st.markdown(
        t(
            "**Why do queries share keys, and not the other way round?** A query is used once, by its own token, and "
            "forgotten; a key and a value are kept for every later token. Sharing keys and values shrinks what is "
            "kept and what every step has to read; sharing queries would save nothing, because no query is ever cached."
        )
    )
