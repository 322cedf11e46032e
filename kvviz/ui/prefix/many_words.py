"""A run of many prompts in numbers and sentences; the saved report says the same."""

from kvviz.locale import Translate
from kvviz.ui.prefix.many_work import ManyResult
from kvviz.units import size


def numbers(t: Translate, result: ManyResult) -> list[tuple[str, str, str, str]]:
    """(name, label, value, line under it) of a run."""
    facts = result.statistics
    budget = t("no limit") if result.budget_bytes is None else t("budget {size}").format(size=size(result.budget_bytes))
    return [
        ("rate", t("Hit rate (by tokens)"), f"{facts.hit_rate:.1%}",
         t("{hits} of {count} prompts found something").format(hits=facts.hits, count=facts.hits + facts.misses)),
        ("saved", t("Tokens not computed"), f"{facts.tokens_saved:,}",
         t("of {count}").format(count=f"{facts.prompt_tokens:,}")),
        ("bytes", t("K and V not computed"), size(facts.bytes_saved),
         t("{each} a token").format(each=size(result.bytes_per_token))),
        ("held", t("Held at the end"), size(result.held_bytes),
         budget + " · " + t("{count} tokens evicted").format(count=f"{facts.evicted_tokens:,}")),
    ]  # fmt: skip


def notes(t: Translate, result: ManyResult) -> list[str]:
    """What else a run has to say: prompts that were too large, and the comparison with cold runs."""
    told, served = [], result.served
    large = int((~served["stored"]).sum())
    if large:
        sentence = t("{count} prompts are larger than the budget by themselves: served, but not stored.")
        told.append(sentence.format(count=large))
    if served["logit_gap"].notna().any():
        sentence = t(
            "Against cold runs: the largest difference of a logit is {gap}; all prefills together took {warm} ms "
            "instead of {cold} ms. The times are single measurements."
        )
        warm, cold = served["milliseconds"].sum(), served["cold_milliseconds"].sum()
        told.append(sentence.format(gap=f"{served['logit_gap'].max():.2g}", warm=f"{warm:,.0f}", cold=f"{cold:,.0f}"))
    return told


def tree_note(t: Translate) -> str:
    """How the tree is to be read."""
    return t(
        "A bar is a run of tokens, stored once; what stands right of it goes on from it. On a bar: its tokens, the "
        "prompt that used it last, its text. Leaves go first, the one that was not used for longest before all."
    )
