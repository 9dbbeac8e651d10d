"""Runs programs as at Python's prompt: each has the names of those before it. Each comes as a line of JSON on stdin, and a line
on stdout says that it is done. A program that fails ends the session, and its traceback is on stderr."""

import json
import sys
import types

answers, sys.stdout = sys.stdout, sys.stderr
main = types.ModuleType("__main__")
main.__file__ = "<page>"  # without a file DuckDB takes this for a prompt, and draws a progress bar where the answers go
sys.modules["__main__"] = main
for line in sys.stdin:
    exec(compile(json.loads(line), "<page>", "exec"), vars(main))
    print("done", file=answers, flush=True)
