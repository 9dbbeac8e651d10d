"""The one place that decides what `make test` leaves to `make test-all`, which runs `pytest --exhaustive`."""

from __future__ import annotations

from typing import Any

import pytest

HELP = "run also what takes long: every kill, every state of the models, every moment of a power loss"
LIMIT_SECONDS = 1_800  # for each test of an exhaustive run, against hanging; the limit of pyproject.toml is too short for some
_wanted = False


def learn(config: pytest.Config) -> None:
    """Comes before any file of tests is imported."""
    global _wanted  # noqa: PLW0603
    _wanted = config.getoption("--exhaustive")


def count(usual: int, exhaustive: int) -> int:
    """How often something is done, or how many there are."""
    return exhaustive if _wanted else usual


def only(*values: Any, **more: Any) -> Any:
    """A parameter set of @pytest.mark.parametrize that only an exhaustive run has."""
    return pytest.param(*values, marks=pytest.mark.exhaustive, **more)


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that have the marker `exhaustive`, or gives all of them the time that they may take."""
    if _wanted:
        for item in items:
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS), append=False)  # before any limit of its own
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)
