"""Runs the pipeline as `jlogtool pipeline` does.

python -m jlog.pipeline JOURNAL… DEST
spark-submit --master spark://host:7077 .../jlog/pipeline/__main__.py JOURNAL… DEST
"""

import os
import runpy
import sys

if __name__ == "__main__":
    here: str = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]  # where Python puts the directory of a script
    sys.argv[1:1] = ["pipeline"]
    runpy.run_module("jlog.cli", run_name="__main__")
