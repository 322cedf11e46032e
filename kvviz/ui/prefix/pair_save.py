"""A comparison of two prompts, to take away."""

import numpy as np
import streamlit as st

from kvviz.figures.report import Part, Strip, document
from kvviz.locale import N_, Translate
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import turns_of
from kvviz.palette import Theme
from kvviz.prefix.pair import PrefixReuse
from kvviz.prefix.wrong import CheatResult
from kvviz.ui.prefix.cheat import damage, texts, top_five
from kvviz.ui.prefix.distances import default_pair, map_picture, pair_name, pair_picture
from kvviz.ui.prefix.numbers import figures, notes
from kvviz.ui.prefix.pair_inputs import PairWanted
from kvviz.ui.prefix.pair_work import NEW_TOKENS
from kvviz.ui.prefix.parting import Parting
from kvviz.ui.prefix.save import Table, downloads
from kvviz.ui.prefix.words import reasons
from kvviz.ui.shell import Page


def save(page: Page, wanted: PairWanted, reuse: PrefixReuse, cheated: CheatResult | None) -> None:
    """The buttons under a comparison."""
    tables = {
        "positions": Table(N_("Both prompts, position by position"), reuse.frame),
        "distances": Table(N_("Distances of K and V"), reuse.distances),
        "equal": Table(N_("Equal tokens"), reuse.equal_tokens),
        "blocks": Table(N_("In whole blocks"), reuse.blocks),
    }
    if cheated is not None:
        tables["cheat"] = Table(N_("The cheat: likeliest next tokens"), cheated.top)
    lang, lm = st.session_state.get("lang", "en"), page.resident.model if page.resident else None
    shown = st.session_state.get("prefix_pair_shown", 0)
    downloads(
        page,
        "prefix_pair_save",
        tables,
        lambda: as_html(page.t, page.theme, lang, lm, reuse, cheated, shown),
        as_python(wanted, cheated),
    )


def as_html(
    t: Translate,
    theme: Theme,
    lang: str,
    lm: LanguageModel | None,
    reuse: PrefixReuse,
    cheated: CheatResult | None = None,
    shown: int | None = None,
) -> str:
    """Everything about two prompts in one file; `shown` is the pair of equal tokens that is open."""
    parting = Parting(reuse.first, reuse.second)
    facts = [] if lm is None else model_facts(t, lm)
    facts += [(t("First prompt"), reuse.first.text), (t("Second prompt"), reuse.second.text)]
    facts += [
        (t("Shared"), t("{characters} characters, {tokens} tokens, {blocks} blocks of 16").format(
            characters=parting.characters, tokens=reuse.shared, blocks=parting.blocks)),
        (t("Reused tokens"), f"{reuse.reused:,}"),
        (t("Computed tokens"), f"{reuse.computed:,}"),
    ]  # fmt: skip
    facts += [(label, f"{value} ({below})") for _, label, value, below in figures(t, reuse)]
    strips = [_strip(reuse.first, reuse.shared), _strip(reuse.second, reuse.shared)]
    parts = [Part(t("Both prompts; what is shared is shaded"), [*strips, *reasons(t, parting), notes(t, reuse)])]
    if (picture := map_picture(t, theme, reuse)) is not None:
        parts.append(Part(t("Where are K and V the same, and where not?"), [picture.figure, *picture.told]))
        if reuse.pairs:
            at = shown if shown is not None and shown < len(reuse.pairs) else default_pair(reuse)
            pair = pair_picture(t, theme, reuse, at)
            parts.append(Part(pair_name(t, reuse, at), [*pair.told, pair.figure]))
    if cheated is not None:
        written = [f"{name}: {text}" for name, text in texts(t, cheated)]
        contents = [*damage(t, cheated), cheated.taken(), top_five(t, cheated), *written]
        parts.append(Part(t("And if the cache took them all the same?"), contents))
    parts.append(Part(t("In whole blocks"), [reuse.blocks()]))
    parts.append(Part(t("Both prompts, position by position"), [reuse.frame()], folded=True))
    return document(t("Prefix reuse of two prompts"), facts, parts, lang, theme)


def model_facts(t: Translate, lm: LanguageModel) -> list[tuple[str, str]]:
    """Which model, from where, in which format."""
    return [
        (t("Model"), lm.title),
        (t("Weights"), lm.source + (". " + t(lm.note) if lm.note else "")),
        (t("Revision"), lm.revision),
        (t("Number format"), str(lm.dtype).removeprefix("torch.")),
    ]


def _strip(prompt: object, shared: int) -> Strip:
    return Strip([token.label for token in prompt.tokens], np.arange(len(prompt.tokens)) < shared, "shared")


def as_python(wanted: PairWanted, cheated: CheatResult | None) -> str:
    """The lines that repeat the comparison in a notebook."""
    lines = [
        "import kvviz",
        "",
        f"lm = kvviz.load({wanted.model.name!r}, device={wanted.model.device!r}, dtype={wanted.model.dtype!r})",
        *(f"{name} = {_prompt(getattr(wanted, name), wanted.chat)}" for name in ("first", "second")),
        "reuse = kvviz.compare_prefix(lm, first, second)",
        "print(reuse.shared, reuse.reused, reuse.saved_bytes, reuse.cold_seconds, reuse.warm_seconds, reuse.logit_gap)",
        "positions, distances, equal = reuse.frame(), reuse.distances(), reuse.equal_tokens()",
    ]
    if cheated is not None:
        taken = f"{list(cheated.pairs)}, max_new_tokens={NEW_TOKENS}"
        lines += [f"wrong = kvviz.cheat_prefix(lm, first, second, {taken})", "print(wrong.kl, wrong.top())"]
    return "\n".join(lines)


def _prompt(text: str, chat: bool) -> str:
    return f"kvviz.encode_turns(lm, {turns_of(text)!r})" if chat else repr(text)
