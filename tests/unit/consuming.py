"""Fakes of Kafka and the database for consumers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django_outbox import ConsumedMessage
from django_outbox.consuming.consumer_context import ConsumerContext
from django_outbox.consuming.consumer_progress import Progress
from django_outbox.consuming.handlers import Group, Subscription
from django_outbox.events import WorkerEvent
from django_outbox.message.incoming import OutgoingMessage, TopicPartition
from django_outbox.message.retry import RetryPolicy


def messages(*texts: str) -> list[ConsumedMessage]:
    """One for each text, at offsets from 0 in one partition."""
    return [
        ConsumedMessage(topic="orders", offset=offset, value=text.encode())
        for offset, text in enumerate(texts)
    ]


def group_of(
    handle: Callable[[ConsumedMessage], Any], *, transforms: bool, batch: int = 1
) -> Group:
    subscription = Subscription(
        topics=("orders",),
        group="billing",
        handle=handle,
        name="handle",
        transforms=transforms,
        batch=batch,
    )
    return Group("billing", (subscription,))


class FakeSource:
    """A partition that is ours until a test takes it away."""

    def __init__(self) -> None:
        self.is_ours = self.is_member = True
        self.waits: list[float] = []
        self.next_offsets: dict[TopicPartition, int] = {}
        self.tokens: dict[TopicPartition, str] = {}
        self.to_come: list[ConsumedMessage] = []
        self.on_hold: Callable[[], None] = lambda: None
        self.commits = self.served = 0
        self.is_closed = False

    def poll(self, limit: int, timeout: float) -> list[ConsumedMessage]:
        taken, self.to_come = self.to_come[:limit], self.to_come[limit:]
        return taken

    def serve(self) -> None:
        self.served += 1

    def hold(self, timeout: float, until: Callable[[], bool]) -> None:
        self.waits.append(timeout)
        self.on_hold()

    def owns(self, message: ConsumedMessage) -> bool:
        return self.is_ours

    def done(self, message: ConsumedMessage) -> None:
        self.next_offsets[message.topic_partition] = message.offset + 1

    def commit(self) -> None:
        self.commits += 1

    def token(self, partition: TopicPartition) -> str:
        return self.tokens.get(partition, "")

    @property
    def is_at_end(self) -> bool:
        return not self.to_come

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return (("orders", 0),)

    def ends(self) -> dict[TopicPartition, int]:
        return {} if self.to_come else dict(self.next_offsets)

    def lag(self) -> int:
        return len(self.to_come)

    def close(self) -> None:
        self.is_closed = True


class FakeTransactions:
    """Commits, or fails as a test wants: before the commit, or after it."""

    def __init__(self, source: FakeSource) -> None:
        self.source = source
        self.sent: list[list[OutgoingMessage]] = []
        self.failures: list[tuple[str, Exception]] = []
        """("before" or "after", error), one for each transaction that fails."""
        self.refuses: Callable[[OutgoingMessage], Exception | None] = lambda _: None
        self.renewals = 0

    def send(
        self,
        messages: Sequence[OutgoingMessage],
        offsets: Mapping[TopicPartition, int],
        token: str,
    ) -> None:
        for error in filter(None, map(self.refuses, messages)):
            raise error
        moment, failure = self.failures.pop(0) if self.failures else ("", None)
        if moment == "before" and failure:
            raise failure
        self.sent.append(list(messages))
        self.source.tokens |= dict.fromkeys(offsets, token)
        self.source.next_offsets |= offsets
        if failure:
            raise failure

    def renew(self) -> None:
        # It would hold the client that has failed.
        assert sys.exception() is None
        self.renewals += 1

    def rest(self) -> None:
        """There is no client."""

    def close(self) -> None:
        """There is no client."""


class FakeDeadLetters:
    """Keeps dead letters, after as many failures as a test wants."""

    def __init__(self) -> None:
        self.sent: list[OutgoingMessage] = []
        self.failures: list[Exception] = []
        self.rests = 0

    def send(self, message: OutgoingMessage) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append(message)

    def values(self) -> list[str | bytes | None]:
        return [message.value for message in self.sent]

    def rest(self) -> None:
        self.rests += 1

    def close(self) -> None:
        """There is no client."""


class Watch:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []

    def __call__(self, event: WorkerEvent) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def context_of(
    group: Group, source: FakeSource, watch: Watch, *, attempts: int = 3
) -> ConsumerContext:
    progress = Progress(
        [watch], name="worker", group="billing", interval=0.0, clock=lambda: 0.0
    )
    return ConsumerContext(
        group=group,
        membership=source,
        retry=RetryPolicy(attempts=attempts, backoff=0.1, backoff_max=0.3),
        suffix=".dlt",
        progress=progress,
        stop=threading.Event(),
        report=lambda: progress.tick(source),
    )
