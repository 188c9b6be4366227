"""The lease on a lake: taken once, asked for, lost by the dead, given back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.exceptions import LakeInUse
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.commands import run
from django_outbox.pipeline.lake import run_lease
from django_outbox.pipeline.lake.run_lease import Holder, Register, lease, start_of
from django_outbox.pipeline.pipeline_settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = Holder(purpose="run", host="web-1", pid=4711, machine="another")
"""A holder that answers nobody."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> PipelineSettings:
    return PipelineSettings(lake=str(tmp_path_factory.mktemp("lease") / "lake"))


@pytest.fixture
def register(
    spark: SparkSession, settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> Register:
    """Give the lease's table, which is free, and let holders answer at once."""
    monkeypatch.setattr(run_lease, "CHECK_INTERVAL", 0.1)
    monkeypatch.setattr(run_lease, "POLL_INTERVAL", 0.1)
    register = Register(spark, settings)
    if (left := register.read()) is not None:
        assert register.swap(left, None)
    return register


def test_one_of_many_runs_gets_the_lake(
    spark: SparkSession, settings: PipelineSettings, register: Register
) -> None:
    start, refused = threading.Barrier(3), threading.Barrier(3)

    def take(purpose: str) -> str:
        start.wait()
        try:
            with lease(spark, settings, purpose=purpose):
                refused.wait()
        except LakeInUse as error:
            refused.wait()
            return str(error)
        return ""

    with ThreadPoolExecutor(3) as pool:
        first, second, none = sorted(pool.map(take, ("run", "refine", "ingest")))[::-1]
    assert none == ""
    pid = f"pid {Holder(purpose='').pid}"
    for text in (first, second):
        assert text.startswith(f"{settings.lake} is in use: `")
        assert pid in text
    assert register.read() is None


def test_an_error_in_the_block_frees_the_lake(
    spark: SparkSession, settings: PipelineSettings, register: Register
) -> None:
    with pytest.raises(ZeroDivisionError), lease(spark, settings, purpose="run"):
        holder = register.read()
        assert holder is not None
        assert holder.purpose == "run"
        raise ZeroDivisionError
    assert register.read() is None


def test_a_holder_that_does_not_answer_loses_the_lake(
    spark: SparkSession,
    settings: PipelineSettings,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_lease, "EXPIRY", 1.0)
    # It has been asked already, by a contender that has died itself.
    assert register.swap(None, replace(ELSEWHERE, asked="x"))
    began, said = time.monotonic(), list[str]()
    with lease(spark, settings, purpose="run", waiting=said.append):
        assert time.monotonic() - began >= 1.0
    assert register.swap(None, ELSEWHERE)
    began = time.monotonic()
    with lease(spark, settings, purpose="run", waiting=said.append):
        assert time.monotonic() - began >= 1.0
    assert len(said) == 2
    assert said[0] == f"{ELSEWHERE} does not answer. Waiting up to 1 s."


def test_a_killed_process_of_this_machine_has_lost_the_lake(
    spark: SparkSession, settings: PipelineSettings, register: Register
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = Holder(purpose="run", pid=process.pid, started=start_of(process.pid))
    assert not holder.has_ended()
    assert register.swap(None, holder)
    process.kill()
    process.communicate()
    assert holder.has_ended()
    assert replace(holder, machine="another").has_ended() is False
    with lease(spark, settings, purpose="run", waiting=pytest.fail):
        pass


def test_who_asks_before_a_step_hears_of_the_loss_at_once(
    spark: SparkSession, settings: PipelineSettings, register: Register
) -> None:
    with (
        pytest.raises(LakeInUse, match="has lost the lake"),
        lease(spark, settings, purpose="rebuild") as held,
    ):
        held.check()
        assert register.swap(register.read(), ELSEWHERE)
        held.check()
        pytest.fail("it went on")
    assert register.swap(ELSEWHERE, None)


def test_a_run_whose_lake_was_taken_stops(
    spark: SparkSession,
    settings: PipelineSettings,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def session(_: PipelineSettings) -> Iterator[SparkSession]:
        """Give the session of all tests, which a command would end."""
        yield spark

    monkeypatch.setattr(run, "session", session)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "nowhere:9092")
    refine = ["refine", "--lake", settings.lake, "--topic", "t", "--every", "1h"]

    def steal() -> None:
        while not Path(settings.checkpoint("refine"), "metadata").exists():
            time.sleep(0.1)
        assert register.swap(register.read(), ELSEWHERE)

    with ThreadPoolExecutor(1) as pool:
        stolen = pool.submit(steal)
        assert main(refine) == 1
        stolen.result()
    (line,) = capsys.readouterr().err.splitlines()
    assert f"has lost the lake to {ELSEWHERE}: it did not answer for 30 s" in line
    assert spark.streams.active == []
    assert register.read() == ELSEWHERE

    assert register.swap(ELSEWHERE, None)
    with lease(spark, settings, purpose="rebuild"):
        assert main(refine) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert f"refine: {settings.lake} is in use: `rebuild` on " in line
