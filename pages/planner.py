"""Memory planner: the cache of any architecture, checked by its real code."""

from kvviz.ui.shell import open_page

page = open_page("planner")

from kvviz.ui.planner.views import VIEWS
from kvviz.ui.views import show_views

show_views(page, VIEWS)
