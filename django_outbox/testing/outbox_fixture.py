"""What a test does with its outbox: look at messages, send them, let Kafka fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ..conf import settings
from ..exceptions import ConfigurationError, DeliveryFailed
from ..message.incoming import ConsumedMessage
from ..models.routing import outbox_database
from ..postgres.outbox_identity import named_settings
from .draining import RelayUnderTest
from .memory_kafka import DeliveryFault, InMemoryKafka
from .stashed_messages import StashedMessage, parked_messages, waiting_messages
from .value_lookups import matches, require_known
from .visible_table import VisibleTable


class OutboxFixture:
    """
    The outbox of one test, on the test's own connection.

    Args:
        using: alias of its database; by default the setting DATABASE, else the
            answer of the routers.
    """

    def __init__(self, using: str | None = None) -> None:
        self.kafka = InMemoryKafka()
        """Where `drain()` sends to."""
        self._using = using

    @property
    def messages(self) -> list[StashedMessage]:
        """What was stashed and not sent, oldest first; staged messages come last."""
        return waiting_messages(self._alias)

    @property
    def parked(self) -> list[StashedMessage]:
        """What the relay has parked."""
        return parked_messages(self._alias)

    def assert_stashed(
        self,
        topic: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        times: int | None = None,
        **value: Any,
    ) -> list[StashedMessage]:
        """
        Assert that messages like this wait in the outbox; return them.

            outbox.assert_stashed("orders", key="17", value__status="placed")

        Args:
            topic: The Kafka topic.
            key: The key; any if not given.
            headers: Headers that the message has, among others.
            times: How many such messages there are; by default one or more.
            value: `value=` compares the whole value, `value__a__b=` a part of it;
                the name of a part may end with a lookup, as in `value__a__gt=1`.

        Raises:
            AssertionError: There are fewer or more; lists what was stashed.
            TypeError: An argument has a name that is none of these.
        """
        require_known(value)
        messages, wanted = self.messages, (headers or {}).items()
        found = [
            message
            for message in messages
            if message.topic == topic
            and key in (None, message.key)
            and wanted <= dict(message.headers).items()
            and matches(message.value, value)
        ]
        if not found if times is None else len(found) != times:
            conditions = {"key": key, "headers": headers}
            given = {name: it for name, it in conditions.items() if it is not None}
            shown = ", ".join(f"{name}={it!r}" for name, it in (given | value).items())
            raise AssertionError(
                f"{len(found)} messages to {topic!r}{' with ' if shown else ''}{shown} "
                f"were stashed, expected {'at least 1' if times is None else times}. "
                f"{_listed(messages)}"
            )
        return found

    def assert_nothing_stashed(self, topic: str | None = None) -> None:
        """
        Assert that no message waits in the outbox, or none to this topic.

        Raises:
            AssertionError: There are some; lists them.
        """
        found = [m for m in self.messages if topic in (None, m.topic)]
        if found:
            raise AssertionError(f"Nothing was to be stashed. {_listed(found)}")

    def drain(self, *, seconds: float = 60.0) -> list[ConsumedMessage]:
        """
        Send what waits through the real relay; return what has arrived in Kafka.

        Args:
            seconds: For how long to go on while deliveries fail, by the relay's own
                clock, which skips all waits.

        Raises:
            Exception: What a receiver of record_parked raises.
        """
        before = len(self.kafka.messages)
        table = VisibleTable(self._alias)
        try:
            options = named_settings(self._alias)
        except ConfigurationError:
            # The tables were made without migrations: any name will do here.
            options = settings.snapshot().named(str(UUID(int=0)))
        relay = RelayUnderTest(options, table=table, kafka=self.kafka)
        relay.drain(seconds=seconds)
        return self.kafka.messages[before:]

    def fail_delivery(
        self,
        topic: str,
        *,
        key: str | None = None,
        times: int | None = 1,
        error: DeliveryFailed | None = None,
    ) -> DeliveryFault:
        """
        Let the next deliveries to a topic fail.

        Args:
            topic: The topic.
            key: Only records of this key fail.
            times: How many deliveries; None: until the fault is stopped.
            error: Why; `RecordPoisoned` is one that a retry cannot repair.
        """
        error = error or DeliveryFailed("A fault of the test.", code="_MSG_TIMED_OUT")
        return self.kafka.add_fault(DeliveryFault(topic, key, error, times))

    @property
    def _alias(self) -> str:
        return outbox_database(self._using or settings.DATABASE)


def _listed(messages: list[StashedMessage]) -> str:
    if not messages:
        return "Nothing was stashed."
    lines = [f"  {number}. {message}" for number, message in enumerate(messages, 1)]
    return "\n".join(["Stashed:", *lines])
