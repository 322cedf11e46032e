"""Facts to hide in a text and ask for at its end: what they are, where they stand, what the answers come to."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence that says something once, a question for it, and the beginning of its answer.

    `statement` has {answer} where one of `candidates`, each a single word, is put; `cue` ends right before it.
    """

    name: str
    statement: str
    question: str
    cue: str
    candidates: tuple[str, ...]


def _fact(name: str, cue: str, question: str, candidates: str) -> Fact:
    return Fact(name, cue + " {answer}.", question, cue, tuple(candidates.split()))


# unlike each other, so that a model has one fact to find and none to confuse it with
FACTS = (
    _fact("code", "The code of the blue box is", "What is the code of the blue box?",
          "one two three four five six seven eight nine ten"),
    _fact("captain", "The captain of the ship is called", "What is the captain of the ship called?",
          "Peter Mary David Anna Tom Susan Mark Emma Paul Laura"),
    _fact("colour", "The favourite colour of the old king is", "What is the favourite colour of the old king?",
          "red blue green yellow black white brown pink orange purple"),
    _fact("day", "The village market is held on", "When is the village market held?",
          "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    _fact("pet", "The pet of the gardener is a", "What is the pet of the gardener?",
          "cat dog horse rabbit snake lion bear fox bird fish"),
    _fact("city", "The long letter was sent to", "Where was the long letter sent to?",
          "Paris London Rome Berlin Madrid Vienna Boston Chicago Tokyo Moscow"),
    _fact("month", "The exam of the students takes place in", "When does the exam of the students take place?",
          "January February March April June July August September October November"),
    _fact("soup", "The soup of the cook is made of", "What is the soup of the cook made of?",
          "fish beans rice corn milk bread cheese onions carrots potatoes"),
    _fact("ring", "The ring of the doctor is made of", "What is the ring of the doctor made of?",
          "gold silver iron glass wood stone steel copper bone paper"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placement:
    """One fact with its answer at one depth, in percent of the text."""

    fact: Fact
    answer: str
    depth: int


def placements(facts: Sequence[Fact], depths: Sequence[int], rounds: int, seed: int = 0) -> list[list[Placement]]:
    """For each of `rounds` texts one fact a depth; after as many rounds as facts each has been at each depth once.

    There must be at least as many facts as depths.
    """
    drawn = random.Random(seed)
    return [
        [
            Placement(fact := facts[(index + turn) % len(facts)], drawn.choice(fact.candidates), depth)
            for index, depth in enumerate(depths)
        ]
        for turn in range(rounds)
    ]


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share of which `right` of `count` were seen (Wilson 1927); also where none or all were."""
    share, spread = right / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def by_policy(answers: pd.DataFrame) -> pd.DataFrame:
    """One row a policy, in their order: placements, right, right_share with its 95 % interval (low, high), chance,
    probability (mean, of the right answer among the candidates), held_share (mean) and evicted.

    `answers` as from `kvviz.probe_facts(...).frame()`.
    """
    rows = []
    for policy, group in answers.groupby("policy", sort=False):
        right, count = int(group["right"].sum()), len(group)
        low, high = wilson(right, count)
        rows.append(
            {
                "policy": policy,
                "placements": count,
                "right": right,
                "right_share": right / count,
                "low": low,
                "high": high,
                "chance": float((1 / group["candidates"]).mean()),
                "probability": float(group["probability"].mean()),
                "held_share": float(group["held_share"].mean()),
                "evicted": int(group["evicted"].sum()),
            }
        )
    return pd.DataFrame(rows)


def by_depth(answers: pd.DataFrame) -> pd.DataFrame:
    """One row a policy and depth: policy, depth_percent, placements, right, right_share, low, high, held_share."""
    rows = []
    for (policy, depth), group in answers.groupby(["policy", "depth_percent"], sort=False):
        right, count = int(group["right"].sum()), len(group)
        rows.append((policy, depth, count, right, right / count, *wilson(right, count), group["held_share"].mean()))
    columns = ["policy", "depth_percent", "placements", "right", "right_share", "low", "high", "held_share"]
    return pd.DataFrame(rows, columns=columns)


def by_holding(answers: pd.DataFrame) -> pd.DataFrame:
    """right and placements of the answers that no head held any more, some did, and all did ("none", "some", "all")."""
    kinds = answers["held_share"].map(lambda share: "none" if share == 0 else "all" if share == 1 else "some")
    counted = answers["right"].groupby(kinds).agg(["sum", "size"]).reindex(["none", "some", "all"], fill_value=0)
    return counted.rename_axis("held").rename(columns={"sum": "right", "size": "placements"}).reset_index()
