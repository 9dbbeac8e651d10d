"""Signatures for the API pages: those of the core's classes come from their stubs, since compiled code has no types to show.
Private parameters are left out."""

from __future__ import annotations

import ast
import inspect
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path

from sphinx.util.inspect import signature, stringify_signature

CORE = "jlog._core."
ROOT = Path(__file__).resolve().parent.parent


def setup(app):
    app.connect("autodoc-process-signature", signature_of)
    return {"parallel_read_safe": True}


def signature_of(_app, _what, _name, found, *_):
    """Returns arguments and result as the stub has them; None, which changes nothing, where it has none."""
    if getattr(found, "_is_protocol", False):
        return "", None  # no user creates one
    if is_dataclass(found):
        return without_private(found)
    if inspect.isclass(found):
        stub = stub_of(found, "__init__") if found.__module__.startswith(CORE) else None
        known = stub is not None and stub.args.vararg is None  # no user creates the others
        return (f"({ast.unparse(stub.args)})", None) if known else None
    if not inspect.isroutine(found):
        return None
    stub = stub_of(getattr(found, "__objclass__", object), found.__name__)
    return None if stub is None else (f"({ast.unparse(stub.args)})", ast.unparse(stub.returns))


def without_private(found):
    """Returns the arguments of a data class without its private ones; None if it has none of these."""
    whole = signature(found)
    public = [parameter for parameter in whole.parameters.values() if not parameter.name.startswith("_")]
    if len(public) == len(whole.parameters):
        return None
    return stringify_signature(whole.replace(parameters=public), show_return_annotation=False), None


def stub_of(owner, name):
    """Returns the definition of a method in the stub of its class, or of a class that it is derived from, without `self`."""
    for base in owner.__mro__:
        if base.__module__.startswith(CORE):
            aliases, classes = read(ROOT / (base.__module__.replace(".", "/") + ".pyi"))
            for node in classes[base.__name__].body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return without_self(Spelled(aliases).visit(ast.parse(ast.unparse(node)).body[0]))
    return None


def without_self(definition):
    first = definition.args.posonlyargs or definition.args.args
    first[:1] = []
    return definition


@cache
def read(path):
    """Returns the aliases of types in a stub, and its classes."""
    body = ast.parse(path.read_text()).body
    aliases = {node.target.id: node.value for node in body if isinstance(node, ast.AnnAssign) and node.value is not None}
    return aliases, {node.name: node for node in body if isinstance(node, ast.ClassDef)}


class Spelled(ast.NodeTransformer):
    """Puts types in the place of their aliases."""

    def __init__(self, aliases):
        self.aliases = aliases

    def visit_Name(self, node):
        return self.visit(self.aliases[node.id]) if node.id in self.aliases else node
