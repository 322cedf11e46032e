"""Prefix reuse: what two prompts can share of a cache, what many can, and why no more."""

from kvviz.ui.shell import open_page

page = open_page("prefix")

from kvviz.ui.prefix.views import VIEWS
from kvviz.ui.views import show_views

show_views(page, VIEWS)
