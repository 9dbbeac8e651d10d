"""`jlogtool demo`, and then the same lines through Kafka and back (--kafka), and through Spark to Parquet (--spark)."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

import jlog.demo
from jlog.cli.process import ended_orderly

if TYPE_CHECKING:
    from collections.abc import Callable

    from jlog.demo.steps import Demo


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", metavar="INPUT", nargs="*", help="a file or a directory; by default, Python's own sources")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="moves the same lines to a topic of this broker, and back")
    parser.add_argument("--spark", action="store_true", help="moves them to Parquet with Spark, and queries them with SQL")
    parser.add_argument("--after-stdin", action="store_true", help="Spark is being installed until stdin ends")
    options = parser.parse_args()
    parts: list[Callable[[Demo], None]] = []
    if options.kafka is not None:
        from through_kafka import through_kafka

        parts.append(partial(through_kafka, address=options.kafka))
    if options.spark:
        from through_spark import through_spark

        parts.append(partial(through_spark, after_stdin=options.after_stdin))
    try:
        with ended_orderly():
            return jlog.demo.run(options.inputs, parts)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":  # the processes of the demo import this file too
    sys.exit(main())
