"""Measuring a text's attention against the plain forward: time and peak memory, each in a process of its own.

python benchmarks/attention.py [--tokens 1024 4096 8192] [--eager 1024]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

ARMS = ("plain", "measured", "eager")


def main() -> None:
    """One line a length: seconds, their ratio, and the memory each needed beyond the loaded model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1024, 4096])
    parser.add_argument("--eager", type=int, default=1024, help="longest text that eager attention is run on")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(_arm(options.arm, options.tokens[0])))
        return
    for tokens in options.tokens:
        plain, measured = (_in_process(arm, tokens) for arm in ARMS[:2])
        print(
            f"{tokens:>6} tokens: plain {plain['seconds']:.2f} s, measured {measured['seconds']:.2f} s, "
            f"ratio {measured['seconds'] / plain['seconds']:.2f}; beyond the model {plain['mib']:.0f} MiB and "
            f"{measured['mib']:.0f} MiB, {measured['mib'] - plain['mib']:+.0f} MiB",
            flush=True,
        )
        if tokens <= options.eager:
            eager = _in_process("eager", tokens)
            print(f"{'':>6} eager attention: {eager['seconds']:.2f} s, {eager['mib']:.0f} MiB", flush=True)


def _in_process(arm: str, tokens: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--arm", arm, "--tokens", str(tokens)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def _arm(arm: str, tokens: int) -> dict[str, float]:
    """Seconds of the second of two runs, and the peak over both."""
    import torch

    import kvviz
    import kvviz.ui
    from kvviz.engine.attention import forward, layer_measures

    lm = kvviz.load("smollm2-135m")
    ids = torch.randint(10, 40_000, (tokens,), generator=torch.Generator().manual_seed(0))
    if arm == "eager":
        lm.model.set_attn_implementation("eager")

    def work() -> object:
        if arm == "plain":
            return forward(lm, ids, lambda call: None)
        if arm == "measured":
            return layer_measures(lm, ids.tolist())
        with torch.inference_mode():
            return lm.model(ids[None], use_cache=False, output_attentions=True, logits_to_keep=1)

    before = _peak_mib()
    for _ in range(2):
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "mib": _peak_mib() - before}


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
