"""`python -m jlog.cli` does the same as `jlogtool`, where that is not on the path."""

from jlog.cli.tool import main

if __name__ == "__main__":  # a process that `bench` starts imports this file too
    main()
