"""The questions of the Pruning page, one view each."""

from kvviz.locale import N_
from kvviz.ui.pruning import side, sweep, watch
from kvviz.ui.views import View

VIEWS: dict[str, View] = {
    "watch": View(N_("One policy, watched"), N_("Which tokens does a policy throw away, when and why?"), watch.show),
    "side": View(
        N_("Policies side by side"), N_("What does each policy do to the same text, and what does it cost?"), side.show
    ),
    "sweep": View(N_("Budget sweep"), N_("How much of the cache can go before the loss rises?"), sweep.show),
}
