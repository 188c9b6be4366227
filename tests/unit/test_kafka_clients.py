"""What a client that cannot be made ends in."""

from __future__ import annotations

import ctypes
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException

from django_outbox.exceptions import KafkaUnavailable, OutOfResources
from django_outbox.kafka.client_errors import ClientErrors
from django_outbox.kafka.clients import make
from django_outbox.kafka.config import KafkaConfig

NO_TOKEN = KafkaError(
    KafkaError.SASL_AUTHENTICATION_FAILED, "OAuth token not set within 10 seconds"
)


NO_THREAD = KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Unable to create broker thread")
NO_SOCKET = KafkaError(
    KafkaError._TRANSPORT, "b:9092/1: Failed to create socket: Too many open files"
)


def raises_as_documented(config: KafkaConfig) -> object:
    raise KafkaException(NO_TOKEN)


def raises_its_bare_error(config: KafkaConfig) -> object:
    """Come up with an error that is not an exception, as the driver's C code has."""
    for stolen in (KafkaError, NO_TOKEN):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stolen))
    restore = ctypes.pythonapi.PyErr_Restore
    restore.restype = None
    restore(ctypes.py_object(KafkaError), ctypes.py_object(NO_TOKEN), None)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "kind",
    [
        raises_as_documented,
        pytest.param(
            raises_its_bare_error,
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 12), reason="Python lets no such error through"
            ),
        ),
    ],
)
def test_a_token_that_does_not_come_is_waited_for(kind: object) -> None:
    assert callable(kind)
    with pytest.raises(KafkaUnavailable, match="OAuth token not set within 10 seconds"):
        make(kind, {})


def test_what_is_not_the_drivers_goes_through() -> None:
    def interrupted(config: KafkaConfig) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(interrupted, {})


def test_without_threads_memory_or_files_nothing_is_waited_for() -> None:
    """A leader that waited would go on to lead, and nothing would be sent."""

    def refused(config: KafkaConfig) -> object:
        raise KafkaException(NO_THREAD)

    with pytest.raises(OutOfResources, match="no more threads, memory or files: Un"):
        make(refused, {})
    config = {"bootstrap.servers": "nowhere:9092"}
    errors = ClientErrors("producer", action="produce", config=config)
    for error in (NO_THREAD, NO_SOCKET):
        with pytest.raises(OutOfResources, match="no more threads, memory or files: "):
            errors.note(error)
