"""Which token a rule would drop, worked out query by query from the attention of a dense run."""

from collections.abc import Callable

import numpy as np

from kvviz.policies import Policy

# of (weights (group, queries, keys), all heads' weights, keys (keys, width), policy, left, now): worth of each in left
Worth = Callable[[np.ndarray, np.ndarray, np.ndarray, Policy, list[int], int], list[float]]


def _h2o(own, every, keys, policy, left, now):
    return [sum(own[:, query, each].mean() for query in range(each, now + 1)) for each in left]


def _tova(own, every, keys, policy, left, now):
    return [every[:, now, each].mean() for each in left]


def _age(own, every, keys, policy, left, now):
    return [float(each) for each in left]


def _knorm(own, every, keys, policy, left, now):
    return [-float(np.sqrt((keys[each] ** 2).sum())) for each in left]


def _scissorhands(own, every, keys, policy, left, now):
    counts = dict.fromkeys(left, 0)
    for query in range(max(0, now + 1 - policy.history), now + 1):
        seen = own[:, query].mean(axis=0)
        share = 1 / np.count_nonzero(seen)
        for each in left:
            counts[each] += each <= query and seen[each] < 0.9995 * share
    return [-float(count) for count in counts.values()]


def _snapkv(own, every, keys, policy, left, now):
    votes = own[:, now + 1 - policy.window : now + 1].mean(axis=0).sum(axis=0)
    beside = policy.kernel // 2
    return [votes[max(0, each - beside) : each + beside + 1].max() for each in left]


WORTH: dict[str, Worth] = {
    "window": _age,
    "sinks_window": _age,
    "h2o": _h2o,
    "tova": _tova,
    "knorm": _knorm,
    "scissorhands": _scissorhands,
    "snapkv": _snapkv,
}


def protected(policy: Policy, now: int) -> set[int]:
    """Positions that may not go, read from the settings."""
    recent = {
        "h2o": lambda: max(1, int(policy.budget * policy.recent_share)),
        "scissorhands": lambda: policy.recent_tokens,
        "snapkv": lambda: policy.window,
    }.get(policy.id, lambda: 1)()
    return {*range(policy.sinks), *range(now - recent + 1, now + 1)}
