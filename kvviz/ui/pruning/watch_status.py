"""How a run under a policy is doing: its progress, five numbers, and what the policy has done so far."""

from collections.abc import Sequence

import streamlit as st

from kvviz.geometry.memory import cache_bytes
from kvviz.locale import Translate
from kvviz.policies import NEVER, Policy
from kvviz.records import Step
from kvviz.ui.growth.status import ENDS
from kvviz.ui.pruning.watch_run import Wanted, WatchRun
from kvviz.ui.text import failure
from kvviz.units import size


def status(t: Translate, run: WatchRun, steps: Sequence[Step], wanted: Wanted | None) -> None:
    """Progress, the way it ended, or what went wrong; and whether the inputs have changed since."""
    if run.job.error is not None:
        st.error(failure(run.job.error, t), icon=":material/error:")
    elif run.job.running:
        st.progress(*_progress(t, run, len(steps)))
    elif run.job.stopped:
        st.info(t("Stopped after {count} tokens.").format(count=len(steps)), icon=":material/stop_circle:")
    elif steps and steps[-1].finish:
        st.caption(t(ENDS[steps[-1].finish]).format(count=len(steps)))
    if wanted != run.wanted:  # None, too: inputs that give no run are not those of what is shown
        told = t("The settings above have changed since; what is shown belongs to the earlier ones.")
        st.warning(told, icon=":material/history:")


def _progress(t: Translate, run: WatchRun, done: int) -> tuple[float, str]:
    """How far, as a share and in words."""
    if done:
        goal = run.wanted.max_new_tokens
        return min(1.0, done / goal), t("Decode: token {done} of {goal}").format(done=done, goal=goal)
    if run.ahead:
        return 0.0, t("Waiting for a turn: {count} ahead of you").format(count=run.ahead)
    told = t("The prompt is read under the policy: {count} tokens, layer by layer")
    return 0.0, told.format(count=f"{len(run.prompt.ids):,}")


def numbers(t: Translate, run: WatchRun, steps: Sequence[Step]) -> None:
    """Tokens and bytes after the last of `steps`, and what the full cache would hold."""
    now = steps[-1]
    full = cache_bytes(run.shapes, run.lm.dtype.itemsize, now.seen)
    most = max(steps, key=lambda step: step.peak_bytes)
    peak = t("A policy drops tokens after a step's attention, layer by layer: for a moment more is held.")
    share = t("{percent} % of it is held").format(percent=f"{100 * now.cache_bytes / full:.0f}" if full else "–")
    facts = (
        ("seen", t("Tokens seen"), f"{now.seen:,}", t("{count} stored").format(count=f"{now.stored:,}"), None),
        ("bytes", t("Cache"), size(now.cache_bytes), _bytes(t, now.cache_bytes), None),
        ("full", t("Full cache: formula"), size(full), share, _bytes(t, full)),
        ("peak", t("Peak so far"), size(most.peak_bytes), t("in step {step}").format(step=most.index), peak),
        ("allocated", t("Allocated"), size(now.allocated_bytes), _bytes(t, now.allocated_bytes), None),
    )
    for column, (name, label, value, below, helped) in zip(st.columns(5), facts, strict=True):
        with column.container(key=f"watch_number_{name}", gap=None):
            st.metric(label, value, help=helped)
            st.caption(below)


def _bytes(t: Translate, count: int) -> str:
    return t("{bytes} bytes").format(bytes=f"{count:,}")


def done_so_far(t: Translate, run: WatchRun, now: Step) -> None:
    """How many tokens have gone, the first when; or that none had to."""
    gone = run.gone[:, :, : now.seen]
    first = int(gone.min()) if gone.size else NEVER
    if first >= now.seen:
        told = nothing_evicted(t, run.wanted.policy, now.seen, len(run.prompt.ids))
        st.markdown(told) if run.job.running else st.info(told, icon=":material/info:")
    else:
        count = int((gone[0, 0] < now.seen).sum())
        told = t("{count} tokens evicted in every layer and KV head, the first when token {first} had been read.")
        st.markdown(told.format(count=f"{count:,}", first=f"{first:,}"))
    others = sum(shape.kv_heads > 0 for shape in run.shapes) - len(run.layers)
    if others:
        told = t(
            "The policy acts on the {count} full-attention layers; the other {others} keep what their own rule keeps."
        )
        st.caption(told.format(count=len(run.layers), others=others))


def nothing_evicted(t: Translate, policy: Policy, seen: int, prompt: int) -> str:
    """Why a policy had nothing to do: no success of its rule."""
    facts = {"seen": f"{seen:,}", "prompt": f"{prompt:,}", "budget": f"{policy.budget:,}"}
    if policy.evicts == "prefill" and seen > policy.budget:
        told = t(
            "0 tokens evicted: the prompt is shorter than the budget ({prompt} of {budget} tokens), and this policy "
            "cuts the prompt alone."
        )
        return told.format(**facts)
    if seen == policy.budget:
        return t("0 tokens evicted: the text just fills the budget of {budget} tokens.").format(**facts)
    told = t("0 tokens evicted: the text is shorter than the budget ({seen} of {budget} tokens).")
    return told.format(**facts)
