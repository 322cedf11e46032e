"""The questions of the Memory planner, one view each."""

from kvviz.locale import N_
from kvviz.ui.planner import answer, compare, heads, whatif, windows, worked
from kvviz.ui.views import View

VIEWS: dict[str, View] = {
    "plan": View(N_("Plan"), N_("How much memory does it need, and for how many users is there room?"), answer.show),
    "compare": View(N_("Models side by side"), N_("How do architectures differ as the text grows?"), compare.show),
    "whatif": View(N_("What if"), N_("What would the same model hold with another attention?"), whatif.show),
    "heads": View(N_("Heads and groups"), N_("Who shares keys and values with whom?"), heads.show),
    "windows": View(N_("Sliding & hybrid"), N_("Which layer sees how far back?"), windows.show),
    "worked": View(N_("Worked example"), N_("How many bytes a token does Gemma 2 27B really keep?"), worked.show),
}
