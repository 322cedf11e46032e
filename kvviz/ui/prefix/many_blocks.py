"""The same prompts under block sizes side by side, and why a hit rate is zero."""

import pandas as pd
import streamlit as st

from kvviz.analysis.served import MISSES
from kvviz.figures.prefixcache import reused_shares
from kvviz.locale import Translate
from kvviz.ui.prefix.many_work import Blocks, ManyResult
from kvviz.ui.shell import Page
from kvviz.units import size


def blocks(page: Page, result: ManyResult) -> None:
    """Caches side by side: a row each, a table, and the sentences."""
    t = page.t
    st.subheader(t("And with blocks: why is my hit rate 0?"), anchor=False)
    shares = reused_shares(frames(t, result), t, page.theme)
    st.plotly_chart(shares, theme=None, key="prefix_shares", alt=t("Reused share of every prompt under every cache"))
    st.dataframe(block_table(t, result), hide_index=True, key="prefix_blocks")
    with st.container(key="prefix_why"):
        for line in why(t, result):
            st.text(line)
    st.caption(
        t(
            "Engines find again only full blocks, known by a hash over all that comes before, and never a prompt's "
            "last token. The blocks are counted exactly, without a model, under the same budget."
        )
    )


def frames(t: Translate, result: ManyResult) -> dict[str, pd.DataFrame]:
    """Name of a cache -> what it did with each prompt; those that the budget allows."""
    found = {t("tree"): result.served}
    return found | {_name(t, each): each.served for each in result.blocks if each.served is not None}


def block_table(t: Translate, result: ManyResult) -> pd.DataFrame:
    """One row a cache: hit rate, prompts with a hit, tokens saved, bytes held at the end, tokens evicted."""
    rows = [(t("tree"), result.statistics, result.held_bytes)]
    rows += [
        (_name(t, each), each.statistics, int(each.served["held_bytes"].iloc[-1]))
        for each in result.blocks
        if each.served is not None
    ]
    return pd.DataFrame(
        {
            t("cache"): [name for name, _, _ in rows],
            t("hit rate"): [f"{facts.hit_rate:.1%}" for _, facts, _ in rows],
            t("prompts with a hit"): [facts.hits for _, facts, _ in rows],
            t("tokens not computed"): [facts.tokens_saved for _, facts, _ in rows],
            t("held at the end"): [size(held) for _, _, held in rows],
            t("tokens evicted"): [facts.evicted_tokens for _, facts, _ in rows],
        }
    )


def why(t: Translate, result: ManyResult) -> list[str]:
    """A sentence for every cache of blocks that the budget does not allow or that never found anything."""
    told = []
    for each in result.blocks:
        if each.refusal is not None:
            told.append(f"{_name(t, each)}: {each.refusal.sentence(t)}")
        elif not each.statistics.hits:
            told.append(_zero(t, each))
    return told


def _zero(t: Translate, each: Blocks) -> str:
    served = each.served
    longest = int(served["shared_tokens"].max())
    if 0 < longest < each.size:
        told = t(
            "{cache}: hit rate 0. The longest prefix that two prompts share has {longest} tokens, fewer than one "
            "block: no block is ever full of shared tokens."
        )
        return told.format(cache=_name(t, each), longest=longest)
    reasons = served.loc[served["request"] > 0, "reason"]
    reason = reasons.mode().iloc[0] if len(reasons) else "first"
    told = t("{cache}: hit rate 0. For most prompts: {reason}")
    return told.format(cache=_name(t, each), reason=t(MISSES[reason]))


def _name(t: Translate, each: Blocks) -> str:
    return t("blocks of {size}").format(size=each.size)
