"""
One Spark session for all of these tests, and lakes to run pipelines on.

The tests go last, so that the session's Java process disturbs no other test.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.jars import JarError
from django_outbox.pipeline.pipeline_settings import PipelineSettings
from django_outbox.pipeline.session import open_session

from ..machine import do_without
from .lakes import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: HERE in item.path.parents)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session; its own lake is never written."""
    settings = PipelineSettings(lake="/", cores="2", memory="2g", spark=SPARK)
    try:
        session = open_session(settings)
    except (ConfigurationError, JarError) as error:
        do_without(str(error))
    from pyspark.logger import PySparkLogger

    # pytest adds its handler to loggers that do not propagate. Spark's own loggers are
    # of that kind, and would give it their format for all tests to come.
    PySparkLogger.addHandler = logging.Logger.addHandler  # type: ignore[method-assign, assignment]
    yield session
    session.stop()
