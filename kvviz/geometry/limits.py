"""Numbers that can be asked for, and the sentence for all others."""

from kvviz.errors import Refused

MOST_TOKENS, MOST_USERS, MOST_GPUS = 10**9, 10**6, 4096


def whole(name: str, value: object, least: int, most: int) -> int:
    """`value` if it is a whole number from `least` to `most`. Raises Refused otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(
            "{name} must be a whole number from {least} to {most}, not {value}.",
            name=name,
            least=f"{least:,}",
            most=f"{most:,}",
            value=str(value)[:40],
        )
    return value
