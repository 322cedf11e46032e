"""A run of many prompts, to take away."""

import pandas as pd
import streamlit as st

from kvviz.figures.prefixcache import held_bytes, hit_rates, reused_shares, served_tokens
from kvviz.figures.prefixtree import tree
from kvviz.figures.report import Part, document
from kvviz.locale import N_, Translate
from kvviz.models.loading import LanguageModel
from kvviz.palette import Theme
from kvviz.ui.prefix.many_blocks import block_table, frames, why
from kvviz.ui.prefix.many_inputs import ManyWanted
from kvviz.ui.prefix.many_tables import events, misses
from kvviz.ui.prefix.many_words import notes, numbers, tree_note
from kvviz.ui.prefix.many_work import SIZES, ManyResult
from kvviz.ui.prefix.pair_save import model_facts
from kvviz.ui.prefix.save import Table, downloads
from kvviz.ui.shell import Page


def save(page: Page, wanted: ManyWanted, result: ManyResult) -> None:
    """The buttons under a run."""
    tables = {
        "served": Table(N_("What each prompt found"), lambda: result.served),
        "tree": Table(N_("The tree"), lambda: result.tree),
        "events": Table(N_("Events of the tree"), lambda: result.events),
        "blocks": Table(N_("What each prompt found, in blocks"), lambda: in_blocks(result, "served")),
        "block-events": Table(N_("Events of the blocks"), lambda: in_blocks(result, "events")),
    }
    lang, lm = st.session_state.get("lang", "en"), page.resident.model if page.resident else None
    html = lambda: as_html(page.t, page.theme, lang, lm, wanted, result)  # noqa: E731
    downloads(page, "prefix_many_save", tables, html, as_python(wanted))


def in_blocks(result: ManyResult, part: str) -> pd.DataFrame:
    """The frames called `part` of all block sizes, one under the other."""
    there = [each for each in result.blocks if each.served is not None]
    if not there:
        return pd.DataFrame()
    return pd.concat([getattr(each, part).assign(block_size=each.size) for each in there], ignore_index=True)


def as_html(
    t: Translate, theme: Theme, lang: str, lm: LanguageModel | None, wanted: ManyWanted, result: ManyResult
) -> str:
    """Everything about a run in one file."""
    facts = [] if lm is None else model_facts(t, lm)
    facts += [(label, f"{value} ({below})") for _, label, value, below in numbers(t, result)]
    every = frames(t, result)
    parts = []
    if not result.tree.empty:
        parts.append(
            Part(t("What lies in the cache, and what goes next?"), [tree(result.tree, t, theme), tree_note(t)])
        )
    found = [served_tokens(result.served, t, theme), *misses(t, result.served), *notes(t, result)]
    found += [hit_rates(every, t, theme), held_bytes(result.served, result.budget_bytes, t, theme)]
    parts.append(Part(t("What did each prompt find?"), found))
    parts.append(
        Part(
            t("And with blocks: why is my hit rate 0?"),
            [reused_shares(every, t, theme), block_table(t, result), *why(t, result)],
        )
    )
    parts.append(Part(t("Everything that happened in the tree"), [events(t, result.events)], folded=True))
    texts = pd.DataFrame({t("prompt"): range(len(wanted.texts)), t("text"): wanted.texts})
    parts.append(Part(t("The prompts, in order"), [texts], folded=True))
    return document(t("Prefix reuse of many prompts"), facts, parts, lang, theme)


def as_python(wanted: ManyWanted) -> str:
    """The lines that repeat a run in a notebook."""
    options = f", chat={wanted.chat}, verify={wanted.verify}"
    prompts = "\n".join(f"    {text!r}," for text in wanted.texts)
    return "\n".join(
        [
            "import kvviz",
            "",
            f"lm = kvviz.load({wanted.model.name!r}, device={wanted.model.device!r}, dtype={wanted.model.dtype!r})",
            f"prompts = [\n{prompts}\n]",
            f"cache = kvviz.PrefixCache(lm, budget_bytes={wanted.budget_bytes})",
            "for prompt in prompts:",
            f"    cache.serve(prompt{options})",
            "print(cache.statistics)",
            "served, tree, events = cache.frame(), cache.tree(), cache.events()",
            f"for size in {SIZES}:",
            f"    blocks = kvviz.block_cache(lm, size, {wanted.budget_bytes})",
            "    for prompt in prompts:",
            f"        blocks.serve(kvviz.encode(lm, prompt, chat={wanted.chat}).ids)",
            "    print(size, blocks.statistics)",
        ]
    )
