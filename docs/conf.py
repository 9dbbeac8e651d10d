"""Sphinx's settings: `make docs`."""

from importlib.metadata import version as installed_version

project = "jlog"
author = "The jlog authors"
copyright = "The jlog authors"
release = version = installed_version("pyjlog")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"

html_theme = "furo"
html_title = f"jlog {release}"
