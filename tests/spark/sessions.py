"""Spark, set up so that it starts quickly and leaves nothing behind.

As a program it has the JVM write down the classes that Spark loads. With them Spark starts in half the processor time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
# For a few rows, compiling the code of a query takes longer than running it. The commands in their own processes compile it.
FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A virtual machine that has other classes in its path does without these, and says so unless it is told not to.
CLASSES = Path(pyspark.__file__).with_name("classes.jsa")
QUICK_JAVA = f"{SMALL_JAVA} -XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else SMALL_JAVA


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


def write_down_classes() -> None:
    CLASSES.unlink(missing_ok=True)
    java = f"{SMALL_JAVA} -XX:ArchiveClassesAtExit={CLASSES} -Xlog:disable"
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder), **{"spark.driver.extraJavaOptions": java})
        spark.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.proc.stdin.close()  # ends the virtual machine
        gateway.proc.wait()


if __name__ == "__main__":
    write_down_classes()
