"""
Who is in the leader group, and into how many shards each member divides the keys.

Two leaders that divide the keys differently may both send records of one key. So a
process does not lead while the group has a member with another setting SHARDS. That
member's client id tells: it ends with the number, which may be left out if it is one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from concurrent.futures import Future
from typing import Final

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka import KafkaError as DriverError
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from .clients import answer_of

DESCRIBE_TIMEOUT: Final = 300.0
"""Time-out in seconds of a request to describe the group; nobody waits so long. If the
coordinator answers after the time-out, a failed assertion of librdkafka 2.16 ends the
process (its issue 4605)."""

_EMPTY: Final = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})

_COUNT: Final = re.compile(r".*-shards-([0-9]+)", re.DOTALL)


def client_id(name: str, shards: int) -> str:
    """
    Return the client id of a member: `host-123`, or `host-123-shards-4`.

    A name may end like that, too: the pods of a StatefulSet `outbox-shards` do.
    """
    tells_itself = shards == 1 and not _COUNT.fullmatch(name)
    return name if tells_itself else f"{name}-shards-{shards}"


def shards_of(client_id: str) -> int:
    """Return into how many shards the member with this client id divides the keys."""
    found = _COUNT.fullmatch(client_id)
    return int(found[1]) if found else 1


def ask_for_members(admin: AdminClient, group: str) -> Future[ConsumerGroupDescription]:
    """Ask who is in a group; `members_in` reads the answer when it is there."""
    futures = admin.describe_consumer_groups([group], request_timeout=DESCRIBE_TIMEOUT)
    return futures[group]


def members_in(answer: Future[ConsumerGroupDescription]) -> Collection[str] | None:
    """Return the client ids of a group's members; None: the broker did not tell."""
    try:
        found = answer_of(answer, 0.0)
    except KafkaException as error:
        is_unknown = error.args[0].code() == DriverError.GROUP_ID_NOT_FOUND
        return () if is_unknown else None
    if found.state in _EMPTY:
        return ()
    return [member.client_id for member in found.members] or None
