"""`python -m jlog.cli`: the same as `jlogtool`, where that is not on the path."""

from jlog.cli.tool import main

main()
