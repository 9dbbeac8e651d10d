"""Spark, set up so that it starts quickly and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ROOT = Path(__file__).parent.parent.parent
# For a few rows, compiling the code of a query takes longer than running it. The commands in their own processes compile it.
FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def settings(folder: Path) -> dict[str, str]:
    """The settings of a session that starts quickly, and leaves nothing outside of this directory."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1600m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        **FEW_ROWS,
    }


def session(folder: Path, master: str = "local[2]", **more: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("jlog")
    for name, value in {**settings(folder), **more}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made
