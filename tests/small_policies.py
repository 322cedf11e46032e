"""Every policy of the registry with settings that suit texts of a few dozen tokens."""

from typing import Any

from kvviz.policies import REGISTRY, Policy, settings_of

# Where defaults are larger than such a text; a policy that is not named here is taken as it comes.
_SMALL: dict[str, dict[str, Any]] = {
    "snapkv": {"window": 4},
    "scissorhands": {"history": 8, "recent_tokens": 4},
}


def small(name: str, budget: int | float = 9, **settings: Any) -> Policy:
    """The policy called `name`."""
    return REGISTRY[name](budget=budget, **(_SMALL.get(name, {}) | settings))


def modes(name: str) -> list[str]:
    """When it can evict."""
    return next(list(each.choices or ()) for each in settings_of(REGISTRY[name]) if each.name == "evicts")
