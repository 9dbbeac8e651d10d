"""Loads the function between a source and a sink by its name."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from jlog.flow.records import Function


def load(name: str) -> Function:
    """Returns the function that "module:function" names. The module is also looked for in the working directory."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ValueError(f"{name!r} names no function; write module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # any error of the module itself too
        raise ValueError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"{name!r} is no function")
    function: Function = found
    return function
