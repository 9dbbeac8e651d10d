"""A real Spark session for the tests below, started once, as its users have it: Java, and Python workers of their own."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark.clusters import Cluster, skip_without_namespaces
from spark.running import Driver
from spark.sessions import ROOT, session

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a session run in one worker, so that there is one such Java virtual machine. Those of pipelines have one
    of their own, since with the others they would take longer than all the rest. Tests that start drivers of their own, or
    share a cluster, are in two more workers."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            fixtures = getattr(item, "fixturenames", ())
            if "spark" in fixtures:
                group = "spark-pipeline" if item.path.parent.name == "pipeline" else "spark"
            else:
                group = "spark-cluster" if "hosts" in fixtures else "spark-processes"
            item.add_marker(pytest.mark.xdist_group(group))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))  # the first test waits for Java


@pytest.fixture(scope="session")
def _java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and os.access(Path(home, "bin", "java"), os.X_OK)):
        pytest.skip("no Java; apt-get install --no-install-recommends default-jre-headless")


@pytest.fixture(scope="session")
def _spark_environment(_java: None) -> Iterator[None]:
    """Spark starts its Python workers with `python3`, and they must find jlog in a checkout too. Sockets, which killed
    processes of Spark leave behind, are in a directory that goes with the tests; a socket's path is short."""
    with (
        tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True) as temporary,
        pytest.MonkeyPatch.context() as patch,
    ):
        # Not in a file: with its directory in the path of classes, the JVM would not take those that were written down.
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf spark.python.unix.domain.socket.dir={temporary} pyspark-shell")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def spark(_spark_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], shared by all tests, which leave it as it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own
        made = session(tmp_path_factory.mktemp("spark"))
    yield made
    made.stop()


@pytest.fixture
def drive(_spark_environment: None) -> Iterator[Callable[[Path], Driver]]:
    """Starts drivers of their own, to be killed; none is left."""
    started: list[Driver] = []

    def start(folder: Path) -> Driver:
        started.append(Driver(folder, "local[2]"))
        return started[-1]

    yield start
    for driver in started:
        driver.kill()


@pytest.fixture(scope="session")
def cluster(_spark_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver with two executors, each a process of its own with one core. It is started once; its executors may be killed."""
    folder = tmp_path_factory.mktemp("cluster")
    home = folder / "home"  # executors work below it, and not in what pip has installed
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    driver = Driver(folder, "local-cluster[2,1,512]", SPARK_HOME=str(home))
    yield driver
    driver.kill()


@pytest.fixture(scope="session")
def _hosts(_spark_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    skip_without_namespaces()
    started = Cluster(tmp_path_factory.mktemp("hosts"))
    yield started
    started.stop()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of the test's own directories on the hosts."""
    return re.sub(r"\W+", "-", request.node.name)


@pytest.fixture
def hosts(_hosts: Cluster, name: str) -> Cluster:
    """A master and two workers, each on a host of its own."""
    for path in (_hosts.shared, _hosts.private, _hosts.partly):
        (path / name).mkdir()
    return _hosts
