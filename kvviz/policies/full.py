"""Full cache: nothing is ever evicted. The reference every other policy is compared with."""

from dataclasses import dataclass
from typing import ClassVar

from kvviz.locale import N_


@dataclass(frozen=True)
class Full:
    """Keep all. It has no settings; models run as they come."""

    id: ClassVar[str] = "full"
    title: ClassVar[str] = N_("full cache")
    rule: ClassVar[str] = N_("Every token stays.")
    source: ClassVar[str] = ""
    watches: ClassVar[bool] = False

    def sized(self, tokens: int) -> "Full":
        """Itself, whatever the text."""
        return self

    def __str__(self) -> str:
        return "Full()"
