"""Pruning & windows: what happens to the text and its loss when cached tokens are thrown away."""

from kvviz.ui.shell import open_page

page = open_page("pruning")

from kvviz.ui.pruning.views import VIEWS
from kvviz.ui.views import show_views

show_views(page, VIEWS)
