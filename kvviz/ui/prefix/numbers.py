"""The numbers of a comparison: those that ids tell, and those that a model was run for."""

import streamlit as st

from kvviz.locale import Translate
from kvviz.prefix.pair import PrefixReuse
from kvviz.ui.prefix.parting import BLOCK, Parting
from kvviz.ui.prefix.words import reasons
from kvviz.ui.shell import Page
from kvviz.units import size


def counts(page: Page, parting: Parting) -> None:
    """How much is shared, three ways, how much of it reused, and why no more."""
    t = page.t
    count = len(parting.second.ids)
    rows = [
        ("characters", t("Shared characters"), parting.characters, len(parting.second.text)),
        ("shared", t("Shared tokens"), parting.shared, count),
        ("blocks", t("Shared blocks of {size}").format(size=BLOCK), parting.blocks, -(-count // BLOCK)),
        ("reused", t("Reused tokens"), parting.reused, count),
        ("computed", t("Computed tokens"), parting.computed, count),
    ]
    for place, (name, label, value, total) in zip(st.columns(len(rows)), rows, strict=True):
        with place.container(key=f"prefix_number_{name}"):
            st.metric(label, t("{count} of {total}").format(count=f"{value:,}", total=f"{total:,}"))
    with st.container(key="prefix_reasons"):
        for told in reasons(t, parting):
            st.text(told)  # not markdown: tokens are the model's text


def measured(page: Page, reuse: PrefixReuse) -> None:
    """Bytes, times and logits of the comparison that was run."""
    t = page.t
    st.subheader(t("What does that save, and does it change anything?"), anchor=False)
    for place, (name, label, value, below) in zip(st.columns(5), figures(t, reuse), strict=True):
        with place.container(key=f"prefix_number_{name}"):
            st.metric(label, value)
            st.caption(below)
    st.caption(notes(t, reuse))


def figures(t: Translate, reuse: PrefixReuse) -> list[tuple[str, str, str, str]]:
    """(name, label, value, line under it) of what was measured."""
    agrees = t("more than rounding explains ({most})")
    if reuse.agrees:
        agrees = t("rounding (up to {most})")
    top = t("same next token") if reuse.same_top else t("another next token")
    return [
        ("saved", t("K and V not computed"), size(reuse.saved_bytes),
         t("{count} tokens of {each}").format(count=f"{reuse.reused:,}", each=size(reuse.bytes_per_token))),
        ("copied", t("Copied from the cache"), size(reuse.reused_bytes), t("all tensors of it at that place")),
        ("cold", t("Prefill, cold"), _ms(reuse.cold_seconds),
         t("{count} tokens from nothing").format(count=f"{len(reuse.second.ids):,}")),
        ("warm", t("Prefill, warm"), _ms(reuse.warm_seconds),
         t("{count} tokens, and the copy").format(count=f"{reuse.computed:,}")),
        ("gap", t("Logits agree to"), f"{reuse.logit_gap:.2g}",
         f"{agrees.format(most=f'{reuse.facts.tolerance:.1g}')} · {top}"),
    ]  # fmt: skip


def notes(t: Translate, reuse: PrefixReuse) -> str:
    """What the numbers are and are not."""
    told = t(
        "The times are single measurements: with few tokens the fixed cost of a forward hides what is saved. Logits "
        "are those of the last {count} tokens, warm against cold."
    ).format(count=reuse.facts.compared)
    if reuse.reused_bytes < reuse.saved_bytes:
        told += " " + t("Less was copied than saved: layers with a window had forgotten the rest already.")
    return told


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.{1 if seconds < 0.1 else 0}f} ms"
