"""
The one place that builds a Spark session and names Java archives.

Where Spark runs is not the code's business: under `spark-submit` and with
`SPARK_REMOTE` whoever started it has chosen the cluster and its archives.
Otherwise Spark runs inside this process, with the pinned archives.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..exceptions import ConfigurationError, install_command
from ..jars import read_list, resolve
from ..jars.find_java import JavaMissing, find_java
from .pipeline_settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
}
"""What teaches Spark Delta's statements; a Connect server has it at its start."""

EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Tasks that list a table's one folder for VACUUM; else ten thousand.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # A batch is held in memory while it is written to several tables.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""What the tables' meaning, their upkeep and the speed of batches depend on."""

LOCAL: Final = {
    # Without these the driver takes the machine's name, which may not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The defaults are for clusters: two hundred tiny tasks for each shuffle,
    # fifty for each look at a table.
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""What suits one machine."""

JAVA: Final = (
    # Two cores have no use for a collector that works beside the job.
    "-XX:+UseParallelGC",
    # Spark's classes need that much; on the way there each step is a full
    # collection.
    "-XX:MetaspaceSize=256m",
    # Starting Spark runs a lot of code a few times. Java's second compiler is
    # kept for what runs twenty times as often as it would wait for: it saves a
    # third of the start's CPU time, and no batch is slower (tests/benchmarks).
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
    f"-Dlog4j2.configurationFile='{Path(__file__).with_name('log4j2.properties')}'",
)
"""Options of Java for one machine; `spark.driver.extraJavaOptions` replaces them."""


def place(environment: Mapping[str, str] = os.environ) -> str:
    """Who runs Spark: "connect", "submit" or, in this process, "local"."""
    if environment.get("SPARK_REMOTE"):
        return "connect"
    # The launcher that starts Python as a driver leaves its address.
    if environment.get("PYSPARK_GATEWAY_PORT"):
        return "submit"
    return "local"


def open_session(
    settings: PipelineSettings, *, progress: Callable[[str], None] = lambda _: None
) -> SparkSession:
    """
    The session in which everything runs; the one that is there, if there is one.

    Raises:
        ConfigurationError: PySpark or Java is missing; says what to do.
        JarError: a pinned archive is not to be had.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigurationError(
            f"the package PySpark is missing: {install_command('spark')}."
        )
    where = place()
    properties = {**EVERYWHERE}
    if where != "connect":
        properties |= DELTA
    if where == "local":
        _prepare_process()
        jars = ",".join(map(str, spark_jars(progress=progress)))
        properties |= {
            **LOCAL,
            "spark.master": f"local[{settings.cores}]",
            "spark.driver.memory": settings.memory,
            "spark.jars": jars,
            "spark.driver.extraJavaOptions": " ".join(JAVA),
        }
    properties |= settings.spark

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("django-outbox")
    for name, value in properties.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def spark_jars(*, progress: Callable[[str], None] = lambda _: None) -> list[Path]:
    """The files of the pinned archives; downloads what is missing."""
    return resolve(read_list("spark"), progress=progress)


def _prepare_process() -> None:
    """Let Spark find the Java that is new enough, and workers this Python."""
    try:
        java = Path(find_java()).resolve()
    except JavaMissing as error:
        raise ConfigurationError(
            "Spark needs Java 17 or newer: install one, or"
            f" `{install_command('java')}`."
        ) from error
    os.environ["JAVA_HOME"] = str(java.parents[1])
    # Spark would warn that the machine's name leads to this machine.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The default is whatever `python3` is on the path, not the environment's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
