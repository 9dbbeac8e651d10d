"""Says when the core has changed without its model: compares each file that a model names with the hash in frozen.txt.

    python tools/model/frozen.py             status 1 if a file has changed; part of `make lint`
    python tools/model/frozen.py --renew     records the files as they are now

A model names its files of the core in its docstring. Comments and docstrings of the core may change freely.
"""

import ast
import hashlib
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDED = HERE / "frozen.txt"
NOT_CODE = re.compile(r'"""[\s\S]*?"""|/\*[\s\S]*?\*/|#(?!define|if|el|endif|include).*|\s+')


def models() -> dict[str, list[str]]:
    """Returns the models of each file of the core that a model names."""
    found: dict[str, list[str]] = {}
    for model in sorted(HERE.glob("*.py")):
        text = ast.get_docstring(ast.parse(model.read_text(encoding="utf-8"))) or ""
        for name in re.findall(r"\bpyx/[\w/]+\.\w+", text):
            found.setdefault(name, []).append(model.name)
    return found


def hash_of(name: str) -> str:
    """Returns the hash of the file's code, without comments and white space; nothing if the file is missing."""
    path = ROOT / name
    code = NOT_CODE.sub("", path.read_text(encoding="utf-8")) if path.exists() else ""
    return hashlib.sha256(code.encode()).hexdigest()[:16] if code else "missing"


def main(arguments: list[str]) -> str | None:
    hashes = {name: hash_of(name) for name in sorted(models())}
    if arguments == ["--renew"]:
        RECORDED.write_text("".join(f"{value} {name}\n" for name, value in hashes.items()), encoding="utf-8")
    recorded = dict(reversed(line.split()) for line in RECORDED.read_text(encoding="utf-8").splitlines())
    problems = [
        f"{name} is not the file that {', '.join(models()[name])} was compared with"
        for name in hashes
        if hashes[name] == "missing" or recorded.get(name) != hashes[name]
    ]
    problems += [f"{name} is recorded, but no model names it" for name in sorted(recorded.keys() - hashes.keys())]
    if not problems:
        return None
    return "\n".join(
        [*problems, "Compare the model with the change, run tools/model/check.py, then tools/model/frozen.py --renew."]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
