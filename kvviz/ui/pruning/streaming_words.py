"""What the streaming view says about its numbers: every sentence is chosen and filled by what was measured."""

from kvviz.analysis.losses import perplexity
from kvviz.analysis.streaming import Crossing, after_first, crossing
from kvviz.locale import N_, Translate
from kvviz.ui.pruning.streaming_work import Streamed

_EXPLODES, _RISES = 10.0, 1.2  # how many times the perplexity must be of what it was
_LITTLE = 1.1
_FEW = 256  # tokens past the trained length on which nothing can be said

_PAST = {
    "explodes": N_("Past the trained length of {context} the full cache explodes."),
    "rises": N_("Past the trained length of {context} the full cache gets worse, but does not explode in this text."),
    "holds": N_(
        "Past the trained length of {context} the full cache does not get worse in this text: what the paper shows for "
        "other models is not seen here."
    ),
}


def verdict(t: Translate, found: Streamed) -> list[str]:
    """The answer in sentences: what the window costs, what sinks mend, what happens past the trained length."""
    if found.inactive:
        told = t("0 tokens evicted: the text ({tokens} tokens) is not longer than the cache of {budget}.")
        return [told.format(tokens=f"{len(found.wanted.ids):,}", budget=f"{found.wanted.budget:,}")]
    return [_windows(t, found), past(t, found)]


def _windows(t: Translate, found: Streamed) -> str:
    skip = after_first(found.wanted.budget)
    values = {count: perplexity(nll[skip:]) for count, nll in found.by_sinks.items()}
    full = perplexity(found.full[skip:])
    told = t(
        "After the first eviction, on {scored} tokens: perplexity {full} with the full cache, {window} in the window."
    )
    sentences = [told.format(scored=f"{len(found.full) - skip:,}", full=number(full), window=number(values[0]))]
    for sinks in sorted({min(values.keys() - {0}, default=0), drawn(found) or 0} - {0}):
        told = t("With {sinks} of the places given to the first tokens of the text it is {perplexity}.")
        sentences.append(told.format(sinks=sinks, perplexity=number(values[sinks])))
    if values[0] < full * _LITTLE:
        sentences.append(t("This model hardly needs its sinks: the plain window costs little."))
    return " ".join(sentences)


def past(t: Translate, found: Streamed) -> str:
    """What the full cache does past the trained length, or that the text ends before it."""
    context, read = found.lm.context, len(found.wanted.ids)
    if context is None:
        return t("The model's configuration names no length it was trained for.")
    crossed = crossing(found.full, context)
    if crossed is None:
        told = t(
            "The text that was read ({read} tokens) ends before the model's trained length of {context}: what happens "
            "there is not seen in this run."
        )
        return told.format(read=f"{read:,}", context=f"{context:,}")
    if crossed.tokens_after < _FEW:
        told = t("Only {count} tokens lie past the trained length of {context}: too few to tell what happens there.")
        return told.format(count=crossed.tokens_after, context=f"{context:,}")
    kind = "explodes" if crossed.growth >= _EXPLODES else "rises" if crossed.growth >= _RISES else "holds"
    told = t(
        "Its perplexity is {before} on the {tokens_before} tokens before, {after} on the {tokens_after} behind and "
        "{end} on the last {tokens_end} of them."
    )
    sentences = [t(_PAST[kind]).format(context=f"{context:,}"), told.format(**_facts(crossed))]
    sinks = drawn(found)
    if sinks is not None:
        told = t("With {sinks} sinks + window the same tokens have {before}, {after} and {end}.")
        sentences.append(told.format(sinks=sinks, **_facts(crossing(found.by_sinks[sinks], context))))
    return " ".join(sentences)


def _facts(crossed: Crossing) -> dict[str, str]:
    values = crossed._asdict()
    return {name: f"{value:,}" if isinstance(value, int) else number(value) for name, value in values.items()}


def drawn(found: Streamed) -> int | None:
    """The sink count that stands for all of them in the picture: the paper's four, or the most there are."""
    counts = [count for count in found.by_sinks if count]
    return 4 if 4 in counts else max(counts, default=None)


def number(value: float) -> str:
    """A perplexity for people: three digits that mean something."""
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"
