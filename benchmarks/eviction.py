"""Reading a text under eviction policies: against stepping with the same cache, and against the plain forward.

python benchmarks/eviction.py [--tokens 512 1024 2048] [--steps 48] [--rounds 3] [--budget 0.2] [--cpu]

Stepping feeds the evicting cache token by token. By default only `--steps` tokens are stepped at the start, in the
middle and at the end, into a cache that was filled by reading, and the mean is taken for all; `--steps 0` steps all.
Plain is the body's forward over the text without a cache; a reading stops at the hidden states as well, so head and
losses are on neither side. Ratios are medians of rounds in which the sides take turns. `--cpu` counts processor time on
one thread instead of the clock's, for a machine that others use as well.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor

import kvviz
import kvviz.ui  # torch's threads wait as they do in the app
from kvviz.engine.evicting import EvictingCache
from kvviz.engine.forward import Feeder
from kvviz.engine.head import logits
from kvviz.engine.reading import read
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import ids_of
from kvviz.policies import H2O, TOVA, Full, KNorm, Policy, Scissorhands, SinksWindow, Window

TEXT = Path(__file__).parents[1] / "tests" / "english.txt"
DECODED = 24  # tokens of which decoding is timed
_clock = [time.perf_counter]


def main() -> None:
    """One line a policy and length, then one a policy for decoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="*", default=[512, 1024, 2048])
    parser.add_argument("--steps", type=int, default=48, help="tokens stepped in each of three places; 0: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.2)
    parser.add_argument("--cpu", action="store_true", help="processor time on one thread")
    options = parser.parse_args()
    if options.cpu:
        torch.set_num_threads(1)
        _clock.append(time.process_time)
    lm = kvviz.load("smollm2-135m")
    ids = ids_of(lm, TEXT.read_text(encoding="utf-8"))
    print(f"{lm.title} in {lm.dtype} on {lm.device}, {torch.get_num_threads()} threads, budget {options.budget:.0%}")
    for tokens in options.tokens:
        text = (ids * -(-tokens // len(ids)))[:tokens]
        _reading_against_plain(lm, text, options.budget, options.rounds)
        _reading_against_stepping(lm, text, H2O(budget=options.budget), options.steps)
    _decoding(lm, ids, options.budget, options.rounds)


def _reading_against_plain(lm: LanguageModel, ids: Sequence[int], budget: float, rounds: int) -> None:
    text = torch.tensor([ids], device=lm.device)

    def plain() -> None:
        with torch.inference_mode():
            lm.model.base_model(text, use_cache=False)

    plain()
    for policy in (
        Full(),
        Window(budget=budget),
        SinksWindow(budget=budget, positions="original"),
        SinksWindow(budget=budget),
        H2O(budget=budget),
        Scissorhands(budget=budget),
        TOVA(budget=budget),
        KNorm(budget=budget),
    ):
        pairs = [(_seconds(plain), _seconds(lambda policy=policy: read(lm, ids, policy))) for _ in range(rounds)]
        _line(f"{len(ids):>6} tokens, {policy}: plain", pairs, "reading")


def _reading_against_stepping(lm: LanguageModel, ids: Sequence[int], policy: Policy, steps: int) -> None:
    """The stretches are stepped one after the other, a reading before each, so that both meet the same machine."""
    starts = [0] if not steps else sorted({max(0, at) for at in (0, (len(ids) - steps) // 2, len(ids) - steps)})
    reading_seconds, step_seconds, gaps = [], [], []
    for start in starts:
        begin = _clock[-1]()
        reading = read(lm, ids, policy)
        reading_seconds.append(_clock[-1]() - begin)
        stop = min(start + steps, len(ids)) if steps else len(ids)
        stepped, seconds = _stepped(lm, ids, policy, start, stop)
        step_seconds += seconds
        gaps.append((_nll(lm, stepped, ids, start) - _nll(lm, reading.hidden[start:stop], ids, start)).abs().max())
    each, whole = statistics.mean(step_seconds), statistics.median(reading_seconds)
    print(
        f"{len(ids):>6} tokens, {policy}: stepping {each * 1000:.0f} ms a token ({len(step_seconds)} of them stepped), "
        f"{each * len(ids):.1f} s for all; reading {whole:.2f} s, {each * len(ids) / whole:.1f}x faster; "
        f"largest difference of a loss {float(max(gaps)):.1e}",
        flush=True,
    )


def _stepped(
    lm: LanguageModel, ids: Sequence[int], policy: Policy, start: int, stop: int
) -> tuple[Tensor, list[float]]:
    """Hidden states of tokens start ... stop - 1, fed one by one, and the seconds of each."""
    cache, feeder, hidden, seconds = EvictingCache(lm, policy, len(ids), len(ids) // 2), Feeder(lm), [], []
    with torch.inference_mode(), cache.at_work():
        if start:
            feeder.hidden(ids[:start], 0, cache)
        for at in range(start, stop):
            begin = _clock[-1]()
            hidden.append(feeder.hidden(ids[at : at + 1], at, cache))
            seconds.append(_clock[-1]() - begin)
    return torch.cat(hidden), seconds


def _nll(lm: LanguageModel, hidden: Tensor, ids: Sequence[int], start: int) -> Tensor:
    """Loss of the token behind each, where there is one."""
    behind = torch.tensor(ids[start + 1 : start + len(hidden) + 1], device=lm.device)
    return -logits(lm.model, hidden[: len(behind)]).log_softmax(dim=-1).gather(1, behind[:, None])[:, 0]


def _decoding(lm: LanguageModel, ids: Sequence[int], budget: float, rounds: int) -> None:
    """`kvviz.stream` with and without a policy behind the same prompt: median of a token's seconds."""
    for policy in (Window(budget=budget), SinksWindow(budget=budget), H2O(budget=budget), TOVA(budget=budget)):
        pairs = [(_a_token(lm, ids, None), _a_token(lm, ids, policy)) for _ in range(rounds)]
        _line(f"decoding behind {len(ids):,} tokens, {policy}: plain", pairs, "with the policy", 1000, "ms a token")


def _a_token(lm: LanguageModel, ids: Sequence[int], policy: Policy | None) -> float:
    times = [_clock[-1]() for _ in kvviz.stream(lm, ids, DECODED, policy=policy)]
    return statistics.median(after - before for before, after in pairwise(times))


def _line(what: str, pairs: list[tuple[float, float]], other: str, times: float = 1.0, unit: str = "s") -> None:
    one, two = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratios = [b / a for a, b in pairs]
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"{what} {one * times:.2f} {unit}, {other} {two * times:.2f} {unit}, "
        f"ratio {statistics.median(ratios):.2f} (rounds: {each})",
        flush=True,
    )


def _seconds(work: Callable[[], object]) -> float:
    begin = _clock[-1]()
    work()
    return _clock[-1]() - begin


if __name__ == "__main__":
    main()
