"""Cold against warm prefill of 2,048 tokens, at shared prefixes of 0, 25, 50 and 90 %, as ratios in one run.

python benchmarks/prefix.py [--rounds 3] [--tokens 2048]
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

import kvviz
import kvviz.ui  # torch's threads wait as they do in the app
from kvviz.engine.cache import new_cache
from kvviz.engine.prefill import prefill
from kvviz.engine.reuse import store_prefix

SHARES = (0.0, 0.25, 0.5, 0.9)


def main() -> None:
    """Print one line a share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times each pair is measured; the median counts")
    parser.add_argument("--tokens", type=int, default=2048, help="length of the prompt")
    options = parser.parse_args()
    lm = kvviz.load("smollm2-135m")
    print(f"{lm.title} in {lm.dtype} on {lm.device}, {torch.get_num_threads()} threads, {options.tokens:,} tokens")
    ids = torch.randint(10, 40_000, (options.tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    prefill(lm, new_cache(lm.config), ids)  # what only the first run pays
    for share in SHARES:
        stored = store_prefix(lm, ids[: int(share * len(ids))])
        cold, warm, copies = [], [], []
        for _ in range(options.rounds):
            cold.append(prefill(lm, new_cache(lm.config), ids).seconds)
            done, _, copied = stored.serve(lm, ids)
            warm.append(copied + done.seconds)
            copies.append(copied)
        each = ", ".join(f"{a / b:.2f}" for a, b in zip(cold, warm, strict=True))
        middle = [statistics.median(seconds) for seconds in (cold, warm, copies)]
        print(
            f"shared {share:>4.0%}: cold {middle[0]:.2f} s, warm {middle[1]:.2f} s "
            f"(copying {middle[2] * 1000:.0f} ms), ratio {middle[0] / middle[1]:.2f} (rounds: {each})"
        )


if __name__ == "__main__":
    main()
