"""What the outbox's own settings and its election cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..election.ports import Heartbeat
from ..message.record import Identity
from ..settings.kafka_rules import risks
from ..settings.message_sizes import largest_message
from ..settings.options import OutboxSettings
from ..settings.problem import Rule
from ..wording import duration
from . import finding_kinds as kinds
from .finding import Finding

_ALL: Final = frozenset({"all", "-1"})
_ACKS: Final = ("acks", "request.required.acks")
_TRUE: Final = frozenset({"true", "t", "1"})
_RISKS: Final = {
    Rule.TLS_VERIFICATION: kinds.TLS_VERIFICATION,
    Rule.CLEAR_TEXT: kinds.CLEAR_TEXT,
}


def settings_findings(
    options: OutboxSettings, *, longest_stop: float
) -> Iterator[Finding]:
    """
    Check the settings of the outbox.

    Args:
        options: valid settings.
        longest_stop: seconds for which a consumer may stop.
    """
    for problem in risks(options):
        yield Finding(
            kind=_RISKS[problem.rule],
            subject=f"setting {problem.setting}",
            seen=problem.message.partition(": ")[0].partition(". ")[0],
            cure="docs/reference/checks.md, django_outbox.W"
            f"{problem.rule.value:03d}, has the properties to set",
        )
    largest = largest_message(options)
    chosen = {**options.KAFKA, **options.PRODUCER_KAFKA}.get("message.max.bytes")
    if chosen is not None and (limit := int(chosen)) < largest:
        yield Finding(
            kind=kinds.PRODUCER_MESSAGE_BYTES,
            subject="setting PRODUCER_KAFKA",
            seen=f"message.max.bytes = {limit}, {largest} needed for MAX_VALUE_BYTES ="
            f" {options.MAX_VALUE_BYTES}",
            cure=f"remove message.max.bytes from KAFKA and PRODUCER_KAFKA, set it to"
            f" {largest}, or lower MAX_VALUE_BYTES",
        )
    window = options.PROCESSED_RETENTION
    if 0 < window < longest_stop:
        yield Finding(
            kind=kinds.DEDUPE_WINDOW,
            subject="setting PROCESSED_RETENTION",
            seen=f"{duration(window)}, and a consumer may stop for"
            f" {duration(longest_stop)}",
            cure=f"set PROCESSED_RETENTION = {longest_stop:g} or more",
        )


def acks_findings(producer: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the properties of the producer of records, as librdkafka gets them."""
    wrong = [
        f"{name} = {producer[name]}"
        for name in _ACKS
        if name in producer and str(producer[name]).lower() not in _ALL
    ]
    idempotence = producer.get("enable.idempotence", False)
    if str(idempotence).lower() not in _TRUE:
        wrong.append(f"enable.idempotence = {idempotence}")
    if wrong:
        yield Finding(
            kind=kinds.ACKS,
            subject="setting PRODUCER_KAFKA",
            seen=", ".join(wrong),
            cure="remove these properties from KAFKA and PRODUCER_KAFKA",
        )


def election_findings(
    heartbeats: Sequence[Heartbeat], identity: Identity | None, topic: str
) -> Iterator[Finding]:
    """
    Report heartbeats of another outbox in the leader topic of this one.

    Args:
        heartbeats: of the last seconds.
        identity: of this outbox; None: it has none, and nothing is compared.
        topic: the leader topic.
    """
    if identity is None:
        return
    others = {
        (beat.outbox, beat.system): beat.node
        for beat in heartbeats
        if beat.outbox
        and (beat.outbox, beat.system) != (identity.outbox, identity.system)
    }
    for (outbox, system), node in sorted(others.items()):
        is_copy = outbox == identity.outbox
        yield Finding(
            kind=kinds.TWO_OUTBOXES,
            subject=f"topic {topic}",
            seen=f"{node} leads outbox {outbox} in the database {system}; this one is"
            f" {identity.outbox} in {identity.system}",
            cure="one is a copy of the other: python manage.py outbox identity --new on"
            " the copy"
            if is_copy
            else "set LEADER_TOPIC and LEADER_GROUP to names that no other outbox uses",
        )
