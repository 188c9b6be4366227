"""
Creates clients of the driver, and translates its exceptions.

With a callback for tokens (`oauth_cb`) the driver waits for the first token while
it creates a client. An outage of the identity provider is therefore treated like
one of a broker: callers retry, and no process ends.

The driver keeps some exceptions for good: one that is being handled when it raises one
of its own, and, before Python 3.12, one that a callback has raised. With its traceback
such an exception would hold the variables of its frames, among them clients with their
threads and connections. So no handler calls the driver but through `serve` and `drop`,
and `driver_error` takes the traceback away.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as DriverError
from confluent_kafka.admin import AdminClient

from ..exceptions import KafkaUnavailable, OutOfResources, says_no_files
from .config import KafkaConfig

_Client = TypeVar("_Client")
_Answer = TypeVar("_Answer")

RAISED: Final = (KafkaException, SystemError)
"""Raised by calls that serve callbacks once the client is fenced: the driver raises a
fatal error there, which Python wraps when more callbacks follow."""

LOST: Final = DriverError(
    DriverError._FAIL,  # noqa: SLF001
    "The Kafka client lost the error.",
)
"""In place of an error that the driver lost."""

INITIAL_WAIT: Final = 0.05
"""Seconds for one attempt at a producer id."""

ANSWER_GRACE: Final = 0.5
"""Seconds beyond its time-out for the driver to report a request without an answer."""


def make(kind: Callable[[KafkaConfig], _Client], config: KafkaConfig) -> _Client:
    """
    Return a new client of the driver.

    Raises:
        KafkaUnavailable: the client could not be created now.
        OutOfResources: it needs more threads, memory or files than there are.
    """
    try:
        return kind(config)
    except RAISED as error:
        # SystemError: the driver called `error_cb` while it raised another error.
        cause = driver_error(error)
        if cause is not None:
            check_resources(cause)
        reason = f"{cause.str()} ({cause.name()})" if cause else str(error)
        raise KafkaUnavailable(f"Cannot create a Kafka client: {reason}.") from error
    except BaseException:
        raise
    except:  # noqa: E722
        # Up to Python 3.11 the driver has raised its bare error, which is not an
        # exception. Only this clause catches it, and to chain it would be unsafe.
        stray = str(sys.exc_info()[1])
    raise KafkaUnavailable(f"Cannot create a Kafka client: {stray}.")


def check_resources(error: DriverError) -> None:
    """
    Raise if an error says that this process gets no more threads, memory or files.

    A leader must not wait for them: its heartbeats go on, and nobody would take over.

    Raises:
        OutOfResources: it does.
    """
    text = error.str()
    is_critical = error.code() == DriverError._CRIT_SYS_RESOURCE
    if is_critical or says_no_files(text):
        raise OutOfResources(
            f"The system gives this process no more threads, memory or files: {text}."
        )


def driver_error(error: Exception) -> DriverError | None:
    """
    Return the driver's error from an exception or its cause.

    None if the driver lost it, as it does when a fatal error and a delivery
    report coincide; the next call raises it again. The exception's traceback goes.
    """
    error.__traceback__ = None
    cause = error if isinstance(error, KafkaException) else error.__cause__
    return cause.args[0] if isinstance(cause, KafkaException) else None


def init_transactions(client: Producer, timeout: float) -> None:
    """
    Make a client's transactional id its own, in `timeout` seconds.

    Each call of the driver makes it try at once what it would else repeat after half a
    second: to ask a coordinator to which it was not connected before.

    Raises:
        KafkaException: not now.
    """
    until = time.monotonic() + timeout
    while True:
        left = until - time.monotonic()
        try:
            client.init_transactions(max(0.0, min(left, INITIAL_WAIT)))
        except KafkaException as error:
            if not error.args[0].retriable() or left <= 0:
                raise
        else:
            return


def answer_of(future: Future[_Answer], timeout: float) -> _Answer:
    """
    Wait for the answer to an admin client's request.

    A future keeps the exception of a refusal. Once raised, that keeps its callers'
    variables, the future among them: a cycle, which holds the client with its threads
    and connections until the garbage collector runs, as it rarely does in a harvester.
    So this function raises an exception of its own.

    Args:
        timeout: seconds that the request itself may take.

    Raises:
        KafkaException: it was refused, or no answer came.
    """
    try:
        refusal = future.exception(timeout + ANSWER_GRACE)
    except FutureTimeout:
        raise KafkaException(DriverError(DriverError._TIMED_OUT)) from None
    if isinstance(refusal, KafkaException):
        raise KafkaException(*refusal.args)
    return future.result()


def serve(client: Producer | Consumer | AdminClient) -> None:
    """Serve callbacks, so that a failed client reports the cause."""
    handled = sys.exception()
    try:
        client.poll(0)
    except RAISED as error:
        error.__traceback__ = None
        while handled is not None:
            handled.__traceback__ = None
            handled = handled.__context__


def drop(client: Producer) -> None:
    """Purge the queue of a client that will not be used again."""
    client.purge()
    serve(client)
