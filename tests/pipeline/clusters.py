"""Spark's own servers as processes: a master with its workers, a Connect server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark

from django_outbox.jars.find_java import find_java
from django_outbox.pipeline.session import DELTA, spark_jars

from ..waiting import eventually

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = Path(pyspark.__file__).parent

SMALL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What keeps a short-lived Java small."""

PROPERTIES: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "800m",
    "spark.driver.extraJavaOptions": SMALL,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


def environment(**more: str) -> dict[str, str]:
    """Where Spark's scripts find Spark, Java and Python."""
    java = Path(find_java()).resolve().parents[1]
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        **more,
    }


def submit(*arguments: str, properties: Mapping[str, str]) -> list[str]:
    """The command line that starts a program with the pinned archives."""
    jars = ",".join(map(str, spark_jars()))
    conf = [f"--conf={name}={value}" for name, value in properties.items()]
    script = str(HOME / "bin" / "spark-submit")
    return [script, "--jars", jars, *conf, *arguments]


@contextmanager
def server(
    command: list[str], *, log: Path, ready: str, **more: str
) -> Iterator[re.Match[str]]:
    """Run a server until the block ends; enter it when its log has said this."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            env=environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def said() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()
        return re.search(ready, log.read_text())

    try:
        yield eventually(said, what=log.read_text)
    finally:
        # Scripts and executors are in the server's own process group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def standalone(folder: Path, *, workers: int) -> Iterator[str]:
    """A master with so many workers of one core; its URL."""
    script = str(HOME / "bin" / "spark-class")
    of_all = ("--host", "127.0.0.1", "--webui-port", "0")
    package = "org.apache.spark.deploy"
    with ExitStack() as running:
        master = running.enter_context(
            server(
                [script, f"{package}.master.Master", *of_all, "--port", "0"],
                log=folder / "master.log",
                ready=r"Starting Spark master at (spark://\S+)",
            )
        )
        commands = [
            [
                *(script, f"{package}.worker.Worker", *of_all),
                *("--cores", "1", "--memory", "600m"),
                *("--work-dir", str(folder / f"worker-{n}"), master[1]),
            ]
            for n in range(workers)
        ]
        for n, command in enumerate(commands):
            running.enter_context(
                server(
                    command,
                    log=folder / f"worker-{n}.log",
                    ready="Successfully registered with master",
                )
            )
        yield master[1]


@contextmanager
def connect_server(folder: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server that has the package on its path; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = submit(
        *("--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        "spark-internal",
        properties={
            **PROPERTIES,
            **DELTA,
            **properties,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.log.level": "INFO",
        },
    )
    with server(
        command,
        log=folder / "connect.log",
        ready="Spark Connect server started at",
        PYTHONPATH=str(ROOT),
        SPARK_DAEMON_MEMORY="900m",
    ):
        yield f"sc://127.0.0.1:{port}"
