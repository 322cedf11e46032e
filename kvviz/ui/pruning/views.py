"""The questions of the Pruning page, one view each."""

from kvviz.locale import N_
from kvviz.ui.pruning import watch
from kvviz.ui.views import View

VIEWS: dict[str, View] = {
    "watch": View(N_("One policy, watched"), N_("Which tokens does a policy throw away, when and why?"), watch.show),
}
