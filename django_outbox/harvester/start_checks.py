"""
What a harvester's process examines when it starts.

The doctor looks once, on a thread of its own, and logs what it finds. With
REQUIRE_DURABLE_TOPICS the process also waits, before it can lead, until Kafka has
told that all topics are durable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from typing import Final

from ..exceptions import ConfigurationError, KafkaError
from ..kafka.cluster_reader import ClusterReader
from ..kafka.config import producer_config
from ..message.record import Identity
from ..operations.durability import refusal
from ..operations.examination import Request, examine, own_topics
from ..operations.finding import Finding, Kind
from ..operations.finding_kinds import NOT_EXAMINED, UNREACHABLE
from ..postgres.database_facts import WaitingTopic
from ..postgres.outbox_identity import require_names, until_answered
from ..settings.rules import TOPIC_NAME
from .harvester import Harvester

logger = logging.getLogger(__name__)

START_DELAY: Final = 1.0
"""Seconds before the doctor looks: the election comes first."""

RETRY_INTERVAL: Final = 60.0
"""Seconds between two looks, while a service is away."""

KAFKA_RETRY_INTERVAL: Final = 1.0
"""Seconds between two requests to Kafka, while the process waits for its answer."""


def wait_until_durable(harvester: Harvester, stop: threading.Event) -> bool:
    """
    Wait until all topics are known to be durable; False when stopped.

    Returns at once without REQUIRE_DURABLE_TOPICS.

    Raises:
        ConfigurationError: a topic is not durable; one line names it and the cure.
    """
    options = harvester.options
    if not options.REQUIRE_DURABLE_TOPICS:
        return True
    make_health = harvester.make_adapters().health
    if make_health is None:
        return True
    with closing(make_health()) as health:

        def ask() -> tuple[Identity | None, Sequence[WaitingTopic]]:
            return health.identity(), health.waiting()

        answer = until_answered(ask, stop)
    if answer is None:
        return False
    ((identity, waiting),) = answer
    options = require_names(options, identity, table=options.TABLE)
    own = own_topics(options)
    records = {one.topic for one in waiting if TOPIC_NAME.match(one.topic)}
    kafka = ClusterReader(options, name=f"{harvester.name}-doctor")
    while not stop.is_set():
        try:
            cluster = kafka.read({*own, *records})
        except KafkaError as error:
            logger.debug("Cannot examine topics: %s", error)
            stop.wait(KAFKA_RETRY_INTERVAL)
            continue
        if text := refusal(cluster, options, own):
            raise ConfigurationError(text)
        return True
    return False


@contextmanager
def examined(harvester: Harvester) -> Iterator[None]:
    """Let the doctor look once, beside the harvest, and log what it finds."""
    stop = threading.Event()
    threading.Thread(
        target=_look, args=(harvester, stop), name="outbox-doctor", daemon=True
    ).start()
    try:
        yield
    finally:
        stop.set()


def _look(harvester: Harvester, stop: threading.Event) -> None:
    """Look until both services have answered; log each finding once."""
    known: set[tuple[Kind, str]] = set()
    pause = START_DELAY
    while not stop.wait(pause):
        try:
            found = _findings(harvester)
        except Exception:
            # Whatever it is: the harvest goes on.
            logger.warning("Doctor failed", exc_info=True, extra={"action": "doctor"})
            return
        if not stop.is_set():
            log_findings([one for one in found if (one.kind, one.subject) not in known])
        if not any(finding.kind is UNREACHABLE for finding in found):
            return
        # What was seen may differ each time: an age, a size.
        known |= {(finding.kind, finding.subject) for finding in found}
        pause = RETRY_INTERVAL


def _findings(harvester: Harvester) -> Sequence[Finding]:
    adapters, options = harvester.make_adapters(), harvester.options
    if adapters.health is None:
        return []
    with closing(adapters.health()) as health:
        return examine(
            Request(
                options=options,
                producer=producer_config(options),
                reads_heartbeats=False,
            ),
            health,
            ClusterReader(options, name=f"{harvester.name}-doctor"),
        ).findings


def log_findings(findings: Sequence[Finding]) -> None:
    """Log findings, one line for each kind."""
    for kind, group in groupby(findings, key=lambda finding: finding.kind):
        first, *others = group
        more = f" and {len(others)} more" if others else ""
        extra = {"action": "doctor", "finding": kind.name}
        if kind is NOT_EXAMINED:
            logger.info(
                "Doctor could not examine %s%s",
                *(first.subject, more),
                extra=extra,
            )
        elif kind is not UNREACHABLE:
            # The clients of the harvest tell of an outage.
            logger.warning(
                "Doctor found %s: %s (%s)%s. See docs/operations/doctor.md",
                *(kind.name, first.subject, first.seen, more),
                extra=extra,
            )
