"""Java, which Spark needs. It is here, because jlog.spark cannot be imported where PySpark is missing."""

from __future__ import annotations

import os
import shutil

INSTALL_JAVA = "apt-get install --no-install-recommends default-jre-headless"


def has_java() -> bool:
    """Says whether Spark would find a Java: on the path, or below JAVA_HOME."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and os.access(os.path.join(home, "bin", "java"), os.X_OK))
