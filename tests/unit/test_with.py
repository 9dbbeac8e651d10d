"""No `with` of a context manager in compiled code, but `with nogil` alone."""

import re
from pathlib import Path

CORE = Path(__file__).resolve().parents[2] / "pyx"
WITH = re.compile(r"^\s*(async )?with (?!nogil:|gil:)\S.*[:,]\s*(#.*)?$", re.MULTILINE)


def test_no_compiled_with_can_end_the_process_where_there_is_no_memory_for_a_traceback():
    """Cython passes a traceback that could not be made on to __exit__ as a null pointer."""
    found = [
        f"{path.relative_to(CORE)}: {match[0].strip()}"
        for path in CORE.rglob("*.pyx")
        for match in WITH.finditer(path.read_text())
    ]
    assert not found
