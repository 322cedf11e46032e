"""A policy's settings: dataclass fields that carry their own help and bounds; controls are drawn from them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.errors import Refused


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a policy as a person meets it; texts are marked English."""

    name: str
    label: str
    help: str
    default: Any
    low: float | None = None  # smallest value that is allowed
    high: float | None = None  # largest
    choices: dict[str, str] | None = None  # option id -> what it means


def setting(default: Any, label: str, help: str, **bounds: Any) -> Any:
    """A dataclass field with label, help and bounds (`low`, `high` or `choices`)."""
    return dataclasses.field(default=default, metadata={"label": label, "help": help, **bounds})


def settings_of(policy: Any) -> tuple[Setting, ...]:
    """The settings of a policy or of its class, in order."""
    return tuple(Setting(each.name, default=each.default, **each.metadata) for each in dataclasses.fields(policy))


def check(policy: Any) -> None:
    """Raise Refused for a value outside its setting's bounds or choices; numpy's numbers become plain ones."""
    for each in settings_of(policy):
        value = getattr(policy, each.name)
        if isinstance(value, np.number):
            value = value.item()
            object.__setattr__(policy, each.name, value)  # frozen, and still being made
        if each.choices is None:
            _check_number(each, value)
        elif value not in list(each.choices):
            raise Refused(
                "{name} must be one of {choices}, not {value}.",
                name=each.name,
                choices=", ".join(each.choices),
                value=repr(value),
            )


def _check_number(each: Setting, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Refused("{name} must be a number, not {value}.", name=each.name, value=repr(value))
    if isinstance(each.default, int) and not isinstance(value, int):
        raise Refused("{name} must be a whole number, not {value}.", name=each.name, value=value)
    if each.low is not None and not value >= each.low:
        raise Refused("{name} must be at least {low}, not {value}.", name=each.name, low=each.low, value=value)
    if each.high is not None and not value <= each.high:
        raise Refused("{name} must be at most {high}, not {value}.", name=each.name, high=each.high, value=value)
