"""Speed of streaming and loading, each as a ratio against the plain alternative in the same run.

python benchmarks/streaming.py [--rounds 3]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from transformers.generation.streamers import BaseStreamer

import kvviz
import kvviz.ui  # torch's threads wait as they do in the app
from kvviz.models.loading import LanguageModel

SHORT, LONG = 32, 4096


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times each pair is measured; the median counts")
    options = parser.parse_args()
    kvviz.load("smollm2-135m")  # converted, and imports done
    seconds = statistics.median(_seconds(lambda: kvviz.load("smollm2-135m")) for _ in range(options.rounds))
    print(f"loading the converted SmolLM2: {seconds:.2f} s")
    lm = kvviz.load("smollm2-135m")
    print(f"{lm.title} in {lm.dtype} on {lm.device}, {torch.get_num_threads()} threads")
    for prompt, new in ((SHORT, 64), (LONG, 24)):
        _streaming_against_generate(lm, prompt, new, options.rounds)


class _Stamps(BaseStreamer):
    """Notes when `generate` hands over each token; the first call is the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def _streaming_against_generate(lm: LanguageModel, prompt: int, new: int, rounds: int) -> None:
    """Decode only: from the first new token to the last."""
    ids = torch.randint(10, 40_000, (prompt,), generator=torch.Generator().manual_seed(0)).tolist()
    batch = torch.tensor([ids], device=lm.device)

    def generate() -> float:
        stamps = _Stamps()
        options = {"min_new_tokens": new, "max_new_tokens": new, "do_sample": False, "streamer": stamps}
        with torch.inference_mode():
            lm.model.generate(batch, attention_mask=torch.ones_like(batch), **options)
        return stamps.times[-1] - stamps.times[1]

    def stream() -> float:
        times = [time.perf_counter() for _ in kvviz.stream(lm, ids, new)]
        assert len(times) == new, "an end of sequence cut the run short"
        return times[-1] - times[0]

    pairs = [(generate(), stream()) for _ in range(rounds)]
    theirs, ours = (statistics.median(times) for times in zip(*pairs, strict=True))
    each = ", ".join(f"{plain / open_:.2f}" for plain, open_ in pairs)
    print(
        f"context {prompt:>5}: streaming {(new - 1) / ours:.1f} tokens/s, generate {(new - 1) / theirs:.1f} tokens/s, "
        f"ratio {theirs / ours:.2f} (rounds: {each})"
    )


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
