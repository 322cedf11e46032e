"""Perplexity of a text under every policy at several budgets, as the table of docs/pruning.md.

python benchmarks/policies_table.py [--text tests/english.txt] [--budgets 0.05 0.1 0.2 0.5]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd

import kvviz
import kvviz.ui  # torch's threads wait as they do in the app
from kvviz.evaluation import Evaluation
from kvviz.policies import (
    H2O,
    TOVA,
    Full,
    KNorm,
    Policy,
    Quantised,
    Random,
    Scissorhands,
    SinksWindow,
    SnapKV,
    Window,
)

FORMS = ("fp8", "int8", "int4")
ROOT = Path(__file__).parents[1]


def arms(budget: float) -> dict[str, Policy]:
    """The policies compared, by what the table calls them."""
    return {
        "window": Window(budget=budget),
        "1 sink + window, original": SinksWindow(budget=budget, sinks=1, positions="original"),
        "1 sink + window, relative": SinksWindow(budget=budget, sinks=1),
        "4 sinks + window, original": SinksWindow(budget=budget, positions="original"),
        "4 sinks + window, relative": SinksWindow(budget=budget),
        "H2O": H2O(budget=budget),
        "Scissorhands": Scissorhands(budget=budget),
        "TOVA": TOVA(budget=budget),
        "SnapKV": SnapKV(budget=budget),
        "KNorm": KNorm(budget=budget),
        "random, 4 protected": Random(budget=budget),
        "random, 0 protected": Random(budget=budget, sinks=0),
    }


def main() -> None:
    """Print one line a policy: at each budget perplexity of all tokens / of the second half / KL of the second half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=ROOT / "tests" / "english.txt")
    parser.add_argument("--budgets", type=float, nargs="*", default=[0.05, 0.1, 0.2, 0.5])
    options = parser.parse_args()
    lm = kvviz.load("smollm2-135m")
    text = options.text.read_text(encoding="utf-8")
    print(f"{lm.title} in {lm.dtype}, {options.text.name}")
    found = {}
    for budget in options.budgets:
        found[budget] = table(kvviz.evaluate(lm, text, [*arms(budget).values()]))
        print(f"{budget:.0%} done", file=sys.stderr)
    print_table(found, options.budgets)
    print_quantised(kvviz.compare_policies(lm, text, [Quantised(form=form) for form in FORMS]))


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """perplexity, second (half), kl by policy."""
    half = frame["position"].max() // 2
    later = frame[frame["position"] > half].groupby("policy", sort=False)
    return pd.DataFrame(
        {
            "perplexity": frame.groupby("policy", sort=False)["nll"].mean().map(np.exp),
            "second": later["nll"].mean().map(np.exp),
            "kl": later["kl"].mean(),
        }
    )


def print_table(found: dict[float, pd.DataFrame], budgets: Sequence[float]) -> None:
    """As markdown."""
    dense = found[budgets[0]].loc[str(Full())]
    print(f"full cache: perplexity {dense['perplexity']:.2f}, second half {dense['second']:.2f}")
    print("| policy | " + " | ".join(f"{budget:.0%}" for budget in budgets) + " |")
    print("|---" * (len(budgets) + 1) + "|")
    for name in arms(budgets[0]):
        cells = []
        for budget in budgets:
            row = found[budget].loc[str(arms(budget)[name])]
            cells.append(f"{row['perplexity']:.2f} / {row['second']:.2f} / {row['kl']:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def print_quantised(found: Evaluation) -> None:
    """One line a form: perplexity of all tokens / of the second half / KL of the second half, and bytes a token."""
    rows, memory = table(found.frame()), found.perplexities().set_index("policy")["cache_bytes"]
    print("\n| cache | perplexity / second half / KL | bytes a token |\n|---|---|---|")
    for name, row in rows.iterrows():
        each = memory[name] / len(found.ids)
        print(f"| `{name}` | {row['perplexity']:.2f} / {row['second']:.2f} / {row['kl']:.4f} | {each:,.0f} |")


if __name__ == "__main__":
    main()
