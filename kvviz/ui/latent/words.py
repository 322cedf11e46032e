"""The answers in words: that both ways give the same numbers, and what each costs."""

import pandas as pd

from kvviz.geometry.latentcounts import break_even_length, break_even_new, equal_groups, latent_counts
from kvviz.latents import LatentComparison
from kvviz.locale import Translate
from kvviz.ui.latent.inputs import Asked
from kvviz.ui.latent.measure import Measured
from kvviz.units import size


def short(number: float) -> str:
    """A small difference: 6.7e-16."""
    return f"{number:.1e}" if number else "0"


def _ratio(one: float, other: float) -> str:
    ratio = one / other
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.2g}"


def verdict(t: Translate, found: LatentComparison) -> str:
    """One sentence with the largest difference of all that was computed."""
    worst = max(found.runs, key=lambda run: run.difference / run.largest if run.largest else 0)
    facts = {"gap": short(worst.difference), "largest": f"{worst.largest:.2g}", "dtype": found.dtype}
    if found.equal:
        told = t("Both ways give the same numbers: the largest difference is **{gap}**, of outputs up to {largest}")
    else:
        told = t("The two ways differ by **{gap}**, of outputs up to {largest}: more than rounding")
    return told.format(**facts) + f" ({found.dtype})."


def conditions(t: Translate, done: Measured) -> str:
    """What was measured, and what stands in for what."""
    found, asked = done.found, done.asked
    if asked.source == "loaded":
        told = t(
            "Measured in layer {layer} of {model} on its own cache of {tokens} tokens. Its own output is in {dtype}, "
            "and differs by that format's rounding."
        )
        dtype = str(done.lm.dtype).removeprefix("torch.")
        told = told.format(layer=asked.layer, model=done.lm.title, tokens=f"{found.decode.tokens:,}", dtype=dtype)
    else:
        told = t("Measured with the attention module of transformers' DeepSeek-V3 and random weights.")
        if (found.sizes, found.decode.tokens) != (asked.sizes, asked.tokens):
            told += " " + t(
                "To be quick it has {heads} of the {all_heads} heads and {tokens} of the {all_tokens} tokens, with the "
                "same widths; all counts below are of the full sizes."
            ).format(
                heads=found.sizes.heads, all_heads=asked.sizes.heads,
                tokens=f"{found.decode.tokens:,}", all_tokens=f"{asked.tokens:,}",
            )  # fmt: skip
    return told + " " + t("Times are medians on this machine at this moment, and no promise for another.")


def measured_table(t: Translate, found: LatentComparison) -> pd.DataFrame:
    """Decode and prefill, one a row."""
    names = (t("decode: the newest token attends"), t("prefill: all tokens attend at once"))
    rows = [
        {
            t("computed"): name,
            t("largest difference of the two ways"): short(run.difference),
            t("largest difference from transformers' output"): short(run.own_difference),
            t("time, expanded : absorbed"): _ratio(run.expanded_seconds, run.absorbed_seconds) + " : 1",
            t("time, K and V at hand : absorbed"): _ratio(run.cached_seconds, run.absorbed_seconds) + " : 1",
        }
        for name, run in zip(names, found.runs, strict=False)
    ]
    return pd.DataFrame(rows)


def costs(t: Translate, asked: Asked) -> list[str]:
    """Sentences on multiply-adds, bytes and where the ways break even."""
    frame = latent_counts(asked.sizes, [asked.tokens], groups=asked.groups, dtype=asked.cached).set_index("way")
    adds, kept = frame["multiply_adds"], frame["bytes_per_token"]
    told = t(
        "**Decode, {tokens} tokens in the cache.** Expanding takes {expanded} multiply-adds, absorbing {absorbed} "
        "({ratio} : 1). Both keep {latent} bytes a token. MHA with the same heads keeps {mha}, {times} times as many; "
        "absorbing takes {more} times its multiply-adds."
    )
    first = told.format(
        tokens=f"{asked.tokens:,}", expanded=f"{adds['expanded']:,}", absorbed=f"{adds['absorbed']:,}",
        ratio=_ratio(adds["expanded"], adds["absorbed"]), latent=f"{kept['absorbed']:,}", mha=f"{kept['mha']:,}",
        times=_ratio(kept["mha"], kept["absorbed"]), more=_ratio(adds["absorbed"], adds["mha"]),
    )  # fmt: skip
    return [first, _break_even(t, asked), _groups(t, asked)]


def _break_even(t: Translate, asked: Asked) -> str:
    length, new = break_even_length(asked.sizes), break_even_new(asked.sizes, asked.tokens)
    # there always is one: a key and a value of at least one number each cost as much to make as two products with c
    told = t("**Break-even.** Absorbing a decode step needs fewer multiply-adds from **{length}** tokens on")
    told = told.format(length=f"{length:,}")
    if new == asked.tokens:
        return told + ". " + t("Even a prefill of all {tokens} tokens needs fewer.").format(tokens=f"{asked.tokens:,}")
    if not new:
        return told + "."
    return told + t(
        "; with many new tokens at once it turns round: up to **{new}** new ones among the {tokens} are cheaper "
        "absorbed, a longer prefill is cheaper expanded."
    ).format(new=f"{new:,}", tokens=f"{asked.tokens:,}")


def _groups(t: Translate, asked: Asked) -> str:
    if equal_groups(asked.sizes) < 1:
        told = t("**Bytes.** Not even MQA keeps as few: one K and V of the same widths for all {heads} query heads.")
        return told.format(heads=asked.sizes.heads)
    told = t("**Bytes.** To keep as few, GQA of the same widths would need {groups} groups, with {heads} query heads.")
    return told.format(groups=f"{equal_groups(asked.sizes):.2f}", heads=asked.sizes.heads)


def counts_table(t: Translate, asked: Asked, names: dict[str, str]) -> pd.DataFrame:
    """The four ways at the chosen length, one a row."""
    frame = latent_counts(asked.sizes, [asked.tokens], groups=asked.groups, dtype=asked.cached)
    return pd.DataFrame(
        {
            t("way"): [t(names[way]) for way in frame["way"]],
            t("bytes kept a token"): [f"{each:,}" for each in frame["bytes_per_token"]],
            t("kept"): [size(each) for each in frame["cached_bytes"]],
            t("K and V made anew each step"): [size(each) if each else "–" for each in frame["made_bytes"]],
            t("multiply-adds a step"): [f"{each:,}" for each in frame["multiply_adds"]],
        }
    )
