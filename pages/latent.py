"""Latent attention: keys and values from latents, or queries to them; the same numbers at another price."""

from kvviz.ui.shell import open_page

page = open_page("latent")

from kvviz.ui.latent.view import show

show(page)
