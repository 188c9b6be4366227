"""
The one place that builds a Spark session and knows about Java archives.

Under `spark-submit` and with `SPARK_REMOTE`, the cluster and its archives have
been chosen already. Otherwise Spark runs inside this process, with the pinned
archives.
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
"""Enables Delta's SQL statements; a Connect server must be started with them."""

LISTS: Final = frozenset({"spark.jars", "spark.sql.extensions"})
"""Properties to which those of the user are added: without ours, there is no Delta."""

CODE_CACHE: Final = {"spark.sql.codegen.cache.maxEntries": "2000"}
"""Compiled code to keep. A batch of refine takes more than Spark's hundred, and would
compile all of it again. Cannot be set on a Connect server's session."""

EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Tasks that list a table's folder for VACUUM; the default is ten thousand.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # A batch stays in memory while it is written to several tables.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Sources of MERGE are stored before, by us.
    "spark.databricks.delta.merge.materializeSource": "none",
}
"""Properties that correct results, maintenance and speed depend on."""

LOCAL: Final = {
    # Without these the driver uses the host name, which may not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The defaults suit clusters: two hundred tiny tasks per shuffle, fifty per
    # snapshot of a table.
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    # The default is 64 MB with 2 GB of memory, and each broadcast takes a page.
    "spark.buffer.pageSize": "4m",
}
"""Properties for one machine."""

JAVA: Final = (
    # A concurrent collector would compete with the job for two cores.
    "-XX:+UseParallelGC",
    # Spark's classes need this much; growing to it costs full collections.
    "-XX:MetaspaceSize=256m",
    # Starting Spark runs a lot of code only a few times. With thresholds twenty
    # times the default, the optimizing compiler skips it: that saves a third of
    # the start's CPU time, and no batch is slower (tests/benchmarks).
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
    f"-Dlog4j2.configurationFile='{Path(__file__).with_name('log4j2.properties')}'",
)
"""Java options for one machine; `spark.driver.extraJavaOptions` replaces them."""


def run_mode(environment: Mapping[str, str] = os.environ) -> str:
    """Return where Spark runs: "connect", "submit", or "local" (this process)."""
    if environment.get("SPARK_REMOTE"):
        return "connect"
    # Set by the launcher that starts Python as a driver.
    if environment.get("PYSPARK_GATEWAY_PORT"):
        return "submit"
    return "local"


def open_session(
    settings: PipelineSettings, *, progress: Callable[[str], None] = lambda _: None
) -> SparkSession:
    """
    Return the current Spark session, or start one.

    Raises:
        ConfigurationError: PySpark or Java is missing; says what to install.
        JarError: a pinned archive cannot be downloaded.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigurationError(
            f"PySpark is not installed. Run: {install_command('spark')}"
        )
    mode = run_mode()
    properties = {**EVERYWHERE}
    if mode != "connect":
        properties |= DELTA | CODE_CACHE
    if mode == "local":
        _prepare_process()
        jars = ",".join(map(str, spark_jars(progress=progress)))
        properties |= {
            **LOCAL,
            "spark.master": f"local[{settings.cores}]",
            "spark.driver.memory": settings.memory,
            "spark.jars": jars,
            "spark.driver.extraJavaOptions": " ".join(JAVA),
        }
    properties = joined(properties, settings.spark)

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("django-outbox")
    for name, value in properties.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def joined(ours: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return our properties and those of the user: theirs count, but for lists."""
    lists = {
        name: f"{ours[name]},{chosen[name]}"
        for name in LISTS
        if name in ours and name in chosen
    }
    return {**ours, **chosen, **lists}


def spark_jars(*, progress: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Return the paths of the pinned archives; download missing ones."""
    return resolve(read_list("spark"), progress=progress)


def _prepare_process() -> None:
    """Point Spark to a Java that is new enough, and its workers to this Python."""
    try:
        java = Path(find_java()).resolve()
    except JavaMissing as error:
        raise ConfigurationError(
            "Spark needs Java 17 or newer. Install one, or run:"
            f" {install_command('java')}"
        ) from error
    os.environ["JAVA_HOME"] = str(java.parents[1])
    # The archives are for the installed PySpark, and for no other Spark.
    os.environ.pop("SPARK_HOME", None)
    # Spark would warn that the host name resolves to a loopback address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The default is the first `python3` on the path, not this environment's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
