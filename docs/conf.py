"""Sphinx's settings: `make docs`."""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent))  # signatures

# Where the sources are: `git clone` of this address brings them. The owner of the project sets it, here and nowhere else.
REPOSITORY = "https://git.example.org/jlog"
WORD_MAX = 30  # characters
ARGUMENT = re.compile(r"([a-z_]+(?:, [a-z_]+)*): ")
SCORER = Path(__file__).with_name("scorer.js")
MEANT = dict(re.findall(r'^  "?([a-z-]+)"?: "(.*)",$', SCORER.read_text(encoding="utf-8"), re.MULTILINE))

project = "jlog"
author = "The jlog authors"
copyright = "The jlog authors"
release = version = installed_version("pyjlog")

extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton", "sphinx.ext.autodoc", "signatures"]
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["command-line.md"]  # the pages that include its parts are in its place
suppress_warnings = ["myst.header"]  # a part begins below the level of its heading
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 90  # of a longer one each argument has a line
python_trailing_comma_in_multi_line_signatures = False
default_role = "literal"  # of `name` in docstrings
smartquotes = False  # they would turn the two hyphens of an option into a dash, and quotes into ones that no program takes
autodoc_preserve_defaults = True  # the name of a function, and not where it lies in memory

html_theme = "furo"
html_title = f"jlog {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(SCORER)
html_logo = html_favicon = "static/logo.svg"
BRAND = ("color-brand-primary", "color-brand-content", "color-api-name", "color-api-pre-name")
BLUE, LIGHT_BLUE = "#1f5fae", "#7db4f7"  # of the drawings
html_theme_options = {
    "light_css_variables": dict.fromkeys(BRAND, BLUE),
    "dark_css_variables": dict.fromkeys(BRAND, LIGHT_BLUE),
    "source_edit_link": REPOSITORY + "/edit/main/docs/{filename}",
    "source_view_link": REPOSITORY + "/blob/main/docs/{filename}",
}
copybutton_prompt_text = r"\w*\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"


def setup(app):
    app.connect("autodoc-process-docstring", list_arguments)
    app.connect("autodoc-process-docstring", show_programs)
    app.connect("doctree-read", add_words)
    app.connect("doctree-read", find_short_code)
    app.connect("source-read", name_repository)


def name_repository(_app, _page, source):
    source[0] = source[0].replace("ADDRESS-OF-THE-SOURCES", REPOSITORY)


def add_words(app, doctree):
    """Lets the search find the page by the words that scorer.js says readers mean it by."""
    if words := MEANT.get(app.env.docname):
        doctree.append(nodes.meta(name="keywords", content=", ".join(words.replace(",", "").split())))


def find_short_code(_app, doctree):
    """Marks inline code whose words are narrower than a telephone: site.css keeps each word on one line."""
    for code in doctree.findall(nodes.literal):
        if all(len(word) <= WORD_MAX for word in code.astext().split()):
            code["classes"].append("short")


def show_programs(*event):
    """Turns an indented paragraph of a docstring into a program: it would be a quotation."""
    lines = event[-1]
    found, inside = [], False
    for line in lines:
        if line.startswith(" ") and not inside and found[-1:] == [""]:
            found += [] if found[-2].endswith("::") else [".. code-block:: python", ""]
            inside = True
        inside = inside and (not line or line.startswith(" "))
        found.append(line)
    lines[:] = found


def list_arguments(*event):
    """Turns the arguments in a docstring into a list: each is `name: text`, and its further lines are indented.

    The first argument follows an empty line. Elsewhere a line of prose may begin with a word and a colon by chance."""
    lines = event[-1]
    found, inside = [], False
    for line in lines:
        argument = ARGUMENT.match(line)
        if argument and not inside and found and found[-1]:
            argument = None
        goes_on = inside and line.startswith(" ")
        if (argument is not None) != inside and not goes_on and found and found[-1]:
            found.append("")
        if argument:
            found.append(f"* ``{argument[1]}``: {line[argument.end() :]}")
        else:
            found.append(f"  {line.strip()}" if goes_on else line)
        inside = argument is not None or goes_on
    lines[:] = found
