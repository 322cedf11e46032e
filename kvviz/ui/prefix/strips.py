"""Both prompts as aligned strips: shared, where they part, and the rest."""

from kvviz.ui.components.aligned_strips import aligned_strips, states
from kvviz.ui.prefix.parting import Parting
from kvviz.ui.prefix.words import legend
from kvviz.ui.shell import Page


def strips(page: Page, parting: Parting) -> None:
    """The strips of two prompts."""
    first, second = parting.first.tokens, parting.second.tokens
    columns = states(parting.shared, parting.reused, len(first), len(second))
    aligned_strips(first, second, columns, key="prefix_strips", t=page.t, names=legend(page.t))
