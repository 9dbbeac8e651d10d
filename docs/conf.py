"""Sphinx's settings: `make docs`."""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # signatures

ARGUMENT = re.compile(r"([a-z_]+(?:, [a-z_]+)*): ")

project = "jlog"
author = "The jlog authors"
copyright = "The jlog authors"
release = version = installed_version("pyjlog")

extensions = ["myst_parser", "sphinx_design", "sphinx.ext.autodoc", "signatures"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True  # the name of a function, and not where it lies in memory

html_theme = "furo"
html_title = f"jlog {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]


def setup(app):
    app.connect("autodoc-process-docstring", list_arguments)


def list_arguments(*event):
    """Turns the arguments in a docstring into a list: each is `name: text`, and its further lines are indented."""
    lines = event[-1]
    found, inside = [], False
    for line in lines:
        argument = ARGUMENT.match(line)
        goes_on = inside and line.startswith(" ")
        if (argument is not None) != inside and not goes_on and found and found[-1]:
            found.append("")
        if argument:
            found.append(f"* ``{argument[1]}``: {line[argument.end() :]}")
        else:
            found.append(f"  {line.strip()}" if goes_on else line)
        inside = argument is not None or goes_on
    lines[:] = found
