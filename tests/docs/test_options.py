"""docs/options.md has every option, with the default that it has."""

import inspect
import re
from pathlib import Path

import jlog
from jlog.options import DEFAULTS, PRECOMMIT_DEFAULT, retention_fields

ROOT = Path(__file__).parents[2]


def documented(title):
    """{option: default} of the table below this heading."""
    text = (ROOT / "docs" / "options.md").read_text()
    table = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", table, re.MULTILINE)
    return {name: eval(default, {"jlog": jlog}) for name, default in rows}


def test_every_option_of_a_journal_is_there_with_its_default():
    found = documented("Of the journal")
    found["retention"] = retention_fields(found["retention"])
    assert found == {"precommit": PRECOMMIT_DEFAULT, **DEFAULTS}


def test_every_option_of_a_writer_is_there():
    journals, writers = documented("Of the journal"), documented("Of one writer")
    parameters = list(inspect.signature(jlog.Writer.__init__).parameters)[2:]
    assert journals.keys() | writers.keys() == set(parameters)
    assert journals.keys() & writers.keys() == {"precommit"}


def test_every_option_of_a_reader_is_there_with_its_default():
    parameters = list(inspect.signature(jlog.Reader.__init__).parameters.values())[2:]
    assert documented("Of one reader") == {parameter.name: parameter.default for parameter in parameters}
