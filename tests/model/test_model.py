"""The protocol's models hold in every state that they can reach, and each known mistake is caught.

`make test` runs only the models that take a second or two, `pytest --exhaustive` all of them.
"""

import sys
from pathlib import Path

import pytest

import exhaustive

MODEL = Path(__file__).resolve().parents[2] / "tools" / "model"
sys.path.insert(0, str(MODEL))
try:
    import check
    from explore import explore
finally:
    sys.path.remove(str(MODEL))


def parameter(model):
    name = model.wrong or model.name.replace(": ", ", ")
    return pytest.param(model, id=name) if model.quick else exhaustive.only(model, id=name)


@pytest.mark.parametrize("model", [parameter(model) for model in check.SCENARIOS])
def test_every_state_keeps_the_promises(model):
    result = explore(model)

    assert result.violation is None, f"{result.violation} after\n" + "\n".join(result.trace)
    assert result.states > 1000, "it has hardly explored anything"


@pytest.mark.parametrize("model", [parameter(model) for model in check.MISTAKES])
def test_a_known_mistake_is_caught(model):
    result = explore(model)

    assert result.violation is not None, f"nothing in {result.states} states shows that this is a mistake"


def test_every_mistake_is_made_by_some_run():
    made = {model.wrong for model in check.MISTAKES}
    written = "".join(file.read_text() for file in MODEL.glob("*.py") if file.name != "scenarios.py")

    assert not [name for name in made if f'"{name}"' not in written]
