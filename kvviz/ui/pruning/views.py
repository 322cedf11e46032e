"""The questions of the Pruning page, one view each."""

from kvviz.locale import N_
from kvviz.ui.pruning import facts, side, streaming, sweep, watch
from kvviz.ui.views import View

VIEWS: dict[str, View] = {
    "watch": View(N_("One policy, watched"), N_("Which tokens does a policy throw away, when and why?"), watch.show),
    "side": View(
        N_("Policies side by side"), N_("What does each policy do to the same text, and what does it cost?"), side.show
    ),
    "sweep": View(N_("Budget sweep"), N_("How much of the cache can go before the loss rises?"), sweep.show),
    "streaming": View(
        N_("The StreamingLLM picture"),
        N_("What does a window cost on a long text, and how many sinks does it take?"),
        streaming.show,
    ),
    "facts": View(N_("Where pruning hurts"), N_("Is a fact still there when it is asked for?"), facts.show),
}
