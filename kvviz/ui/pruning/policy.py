"""Controls of a policy, drawn from its settings."""

from typing import Any

import streamlit as st

from kvviz.errors import Refused
from kvviz.locale import N_, Translate
from kvviz.policies import REGISTRY, Full, Policy, Quantised, Setting, settings_of
from kvviz.ui.shell import Page
from kvviz.ui.text import sentence
from kvviz.ui.url import first_from_url, from_url, to_url

# (setting, option) as a policy's name carries it where it is not the default
_SHORT = {
    ("evicts", "both"): N_("evicts always"),
    ("evicts", "decode"): N_("prompt read in full"),
    ("evicts", "prefill"): N_("prompt cut once"),
    ("positions", "original"): N_("original positions"),
    ("positions", "relative"): N_("cache-relative positions"),
    ("positions", "naive"): N_("naive positions"),
    ("pooling", "mean"): N_("mean of the group"),
    ("pooling", "max"): N_("maximum of the group"),
    ("pooling", "sum"): N_("sum of the group"),
    ("smoothing", "mean"): N_("neighbours' mean"),
    ("smoothing", "max"): N_("neighbours' maximum"),
}


def policy_name(policy: Policy | Full, t: Translate) -> str:
    """A policy for people: its title, its budget, and what differs from the defaults."""
    if isinstance(policy, Quantised):
        return t("{policy} ({settings})").format(policy=t(policy.title), settings=policy.form)
    if isinstance(policy, Full):
        return t(policy.title)
    whole = isinstance(policy.budget, int)
    said = [t("{count} tokens").format(count=f"{policy.budget:,}") if whole else f"{policy.budget:.0%}"]
    for each in settings_of(policy):
        value = getattr(policy, each.name)
        if each.name != "budget" and value != each.default:
            short = _SHORT.get((each.name, value))
            said.append(t(short) if short else f"{t(each.label)} {value:g}")
    return t("{policy} ({settings})").format(policy=t(policy.title), settings=" · ".join(said))


def choose_policy(page: Page, key: str, tokens: int | None, default: str = "h2o") -> Policy | None:
    """One policy with all its settings, sized for a text of `tokens` tokens; None with the reason on the screen."""
    t = page.t
    which, size, more = st.columns([3, 6, 2], vertical_alignment="bottom")
    names = list(REGISTRY)
    first = first_from_url(f"{key}_policy", names, default)
    chosen = which.selectbox(
        t("Policy"),
        names,
        index=names.index(first),
        format_func=lambda each: t(REGISTRY[each].title),
        key=f"{key}_policy",
    )
    kind = REGISTRY[chosen]
    to_url(f"{key}_policy", default)
    with size:
        budget = choose_budget(t, key)
    with more.popover(t("Settings"), icon=":material/tune:", width="stretch"):
        rest = (each for each in settings_of(kind) if each.name != "budget")
        values = {each.name: _control(t, each, f"{key}_{kind.id}") for each in rest}
    try:
        policy = kind(budget=budget, **values)
        return policy if tokens is None else policy.sized(tokens)
    except Refused as refusal:
        st.error(sentence(refusal, t), icon=":material/error:")
        return None


def choose_budget(t: Translate, key: str, percent: int = 20, tokens: int = 64) -> int | float:
    """A budget as a share of the text or in tokens."""
    unit_place, size_place = st.columns(2, vertical_alignment="bottom")
    units = {"share": t("% of the text"), "tokens": t("tokens")}
    from_url(f"{key}_unit", list(units), "share")
    unit = unit_place.segmented_control(
        t("Budget in"), list(units), format_func=units.get, key=f"{key}_unit", required=True
    )
    to_url(f"{key}_unit", "share")
    if unit == "share":
        share = size_place.slider(
            t("Budget"), 1, 100, percent, format="%d %%", key=f"{key}_percent", bind="query-params"
        )
        return share / 100
    return int(size_place.number_input(t("Budget"), 0, 100_000, tokens, key=f"{key}_tokens", bind="query-params"))


def _control(t: Translate, each: Setting, key: str) -> Any:
    """A widget for one setting, with its help and bounds."""
    name, told = f"{key}_{each.name}", t(each.help)
    if each.choices is not None:
        options = list(each.choices)
        return st.selectbox(
            t(each.label),
            options,
            index=options.index(each.default),
            format_func=lambda option: t(each.choices[option]),
            key=name,
            help=told,
            disabled=len(options) == 1,
        )
    if isinstance(each.default, float):
        return st.slider(t(each.label), float(each.low), float(each.high), each.default, 0.05, key=name, help=told)
    return int(st.number_input(t(each.label), int(each.low), int(each.high), each.default, key=name, help=told))


def rules(policy: Policy, t: Translate) -> list[str]:
    """What exactly is implemented, sentence by sentence."""
    budget = t(
        "The budget counts the newest token; a token is dropped after the step's attention, so each query sees the "
        "budget and itself. Scores are float32, equal ones (to 1 in 4,096) leave the choice to age: older goes first."
    )
    meant = {each.name: t(each.choices[getattr(policy, each.name)]) for each in settings_of(policy) if each.choices}
    told = [t(policy.rule), budget, t("Evicts: {when}.").format(when=meant["evicts"])]
    told.append(t("Positions: {how}.").format(how=meant["positions"]))
    if "pooling" in meant:
        told.append(t("Heads of a group: {how}.").format(how=meant["pooling"]))
    return told + [policy.source] * bool(policy.source)


def card(page: Page, policy: Policy) -> None:
    """What exactly is implemented, under one policy's figure."""
    t = page.t
    with st.expander(t("What exactly is “{policy}” here?").format(policy=t(policy.title))):
        for told in rules(policy, t):
            st.markdown(f"- {told}")
        st.code(f"kvviz.policies.{policy}", language="python")
