"""The connectors through which Spark writes tables of Delta Lake and Iceberg: which are needed, and whether they are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from jlog.errors import JournalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = "spark.sql.extensions"
MADE_FOR = re.compile(r"[-_](\d+\.\d+)_\d+\.\d+")  # Spark's version and Scala's, in the name of a jar


@dataclass(frozen=True)
class Connector:
    """package: the Maven coordinates of the version that jlog is tested with. spark: the versions of Spark that it is made for.
    settings: what Spark has to be started with."""

    name: str
    class_name: str
    package: str
    spark: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def with_settings(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings with those of the connector. A setting that is there already stays; extensions are joined."""
        found = {**self.settings, **conf}
        names = [name for name in (conf.get(EXTENSIONS), self.settings.get(EXTENSIONS)) if name]
        if names:
            found[EXTENSIONS] = ",".join(dict.fromkeys(",".join(names).split(",")))
        return found

    def check(self, spark: SparkSession) -> None:
        """Raises JournalError where Spark does not have the connector, or has one that is made for another Spark."""
        jar = jar_of(spark, self.class_name)
        made_for = None if jar is None else MADE_FOR.search(jar)
        version = spark.version.rpartition(".")[0]
        if jar is not None and (made_for is None or made_for[1] == version):
            return
        problem = f"the connector of {self.name} is missing"
        if made_for is not None:
            problem = f"{jar} is made for Spark {made_for[1]}"
        add = f"--conf spark.jars.packages={self.package}, or with spark-submit --packages {self.package}"
        if version == self.spark:
            raise JournalError(f"{problem}; add {add}")
        raise JournalError(
            f"{problem}, and this is Spark {spark.version}. {self.name} is tested with Spark {self.spark}: pip install "
            f"'pyspark=={self.spark}.*', and add {add}. Or add a connector that is built for Spark {version}"
        )


DELTA = Connector(
    "Delta Lake",
    "io.delta.sql.DeltaSparkSessionExtension",
    "io.delta:delta-spark_4.1_2.13:4.3.1",
    "4.1",
    {
        EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
)
ICEBERG = Connector(
    "Iceberg", "org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "4.1"
)
CONNECTORS = {"delta": DELTA, "iceberg": ICEBERG}


def check_catalog(spark: SparkSession, table: str) -> None:
    """Raises JournalError where Spark knows no catalog of the table's name."""
    catalog, *rest = table.replace("`", "").split(".")
    if len(rest) > 1 and spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        setting = f"--conf spark.sql.catalog.{catalog}"
        raise JournalError(
            f"{table}: Spark has no catalog {catalog}; add its settings, for example {setting}={ICEBERG.class_name} "
            f"{setting}.type=hadoop {setting}.warehouse=hdfs:///lake"
        )


def jar_of(spark: SparkSession, class_name: str) -> str | None:
    """Returns the name of the jar that the class is in; None where there is no such class."""
    jvm: Any = spark.sparkContext._jvm
    try:
        found = jvm.org.apache.spark.util.Utils.classForName(class_name, False, False)
    except Py4JError:
        return None
    source = found.getProtectionDomain().getCodeSource()
    return "" if source is None else str(source.getLocation().getPath()).rpartition("/")[2]
