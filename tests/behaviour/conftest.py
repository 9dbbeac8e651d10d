import pytest

import jlog
from behaviour.journals import SMALL


@pytest.fixture
def writer(path):
    """With the smallest buffer and the smallest segments."""
    with jlog.Writer(path, **SMALL) as writer:
        yield writer
