"""The questions of the Prefix reuse page, one view each."""

from kvviz.locale import N_
from kvviz.ui.prefix import many, pair
from kvviz.ui.views import View

VIEWS: dict[str, View] = {
    "pair": View(N_("Two prompts"), N_("What can the second prompt take from the first one's cache?"), pair.show),
    "many": View(N_("Many prompts"), N_("How much do a day's prompts share, and what is thrown out first?"), many.show),
}
