"""
NELI's membership in a Kafka consumer group: the adapter of `election.ports`.

It has a consumer and a small producer for heartbeats. The consumer's rebalance
callbacks are the barrier between two leaders, and its commits are the proofs of
leadership. Both clients are created at `join` and dropped at `leave`, so that
nothing exists when a process forks. Partitions that a process does not own it reads
through a third client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import KafkaError as DriverError
from confluent_kafka import Producer as DriverProducer

from ..election.ports import Heartbeat, JoinLater, Listener
from ..election.strangers import MAY_HAVE_MOVED
from ..message.record import Identity
from ..settings.options import OutboxSettings
from . import heartbeats
from .client_errors import ClientErrors
from .clients import make
from .config import admin_config, consumer_config, heartbeat_config, named, redacted
from .failures import STALE_MEMBER
from .fencing_token import FencingToken
from .group_members import client_id
from .join_gate import JoinGate
from .lookout import Lookout
from .topics import ensure_topic, leader_topic

logger = logging.getLogger(__name__)

MAX_MESSAGES_PER_POLL: Final = 500
"""Messages that one poll handles at most, so that a flood cannot block it."""

MIN_STAY: Final = 1.5
"""
Seconds that a new member stays at least, unless it owns a partition.

librdkafka joins a rebalance at most once a second. If one followed another
sooner, the leader would wait for the slowest follower and could not prove itself.
"""


class KafkaMembership:
    """
    One member of the leader group; one object serves one thread.

    Args:
        options: the settings of the outbox.
        name: the process, as `client.id` shows it to operators.
        identity: identity of this outbox; None: it has none, and other outboxes that
            use its names are not detected.
    """

    def __init__(
        self,
        options: OutboxSettings,
        *,
        name: str = "",
        identity: Callable[[], Identity | None] = lambda: None,
    ) -> None:
        self._options = options
        self._client_id = named(name)
        self._admin_config = admin_config(options) | self._client_id
        self._topic = options.leader_topic
        self._join_gate = JoinGate(
            self._admin_config,
            group=options.leader_group,
            session_timeout=options.SESSION_TIMEOUT,
            shards=options.SHARDS,
        )
        self._lookout = Lookout(options, identity=identity, client_id=self._client_id)
        self.fencing_tokens: dict[int, FencingToken] = {}
        """Part of the transactions of each shard that this member owns; none when
        records are not sent in transactions."""
        self.reason_to_rejoin: str | None = None
        self.leaving: frozenset[int] = frozenset()
        self._member_id: str | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._assigned: set[int] = set()
        """Shards that it owns as soon as the broker has told that all members divide
        the keys in the same way."""
        self._positions: dict[int, int] = {}
        """The next offset to read of each shard that this member owns; 0: unknown."""
        self._may_meet_others = False
        """Whether the topic has room for processes with another setting SHARDS."""
        self._consumer: Consumer | None = None
        self._producer: DriverProducer | None = None
        self._is_leaving = False
        self._is_settled = False
        """Whether the group has completed the join."""
        self._joined_at = 0.0
        self._errors = ClientErrors(
            "leader group", action="elect", config=admin_config(options)
        )

    def join(self, *listeners: Listener) -> None:
        """Ensure that the leader topic exists, then subscribe with new clients."""
        self._leave()
        shards = range(len(listeners))
        if self._lookout.is_in_doubt:
            self._lookout.look(shards)
            raise JoinLater(MAY_HAVE_MOVED)
        if not self._join_gate.is_waiting:
            partitions = ensure_topic(
                self._admin_config,
                leader_topic(self._options),
                may_create=self._options.CREATE_LEADER_TOPIC,
            )
            self._may_meet_others = partitions > 1
        try:
            self._join_gate.enter()
        except JoinLater:
            self._lookout.look(shards)
            raise
        if self._may_meet_others:
            # Making this client may take seconds, which a leader does not have.
            self._lookout.look(shards)
        else:
            self._join_gate.close()
        common = self._client_id | self._errors.callbacks
        config = consumer_config(self._options) | common
        config["client.id"] = client_id(config["client.id"], len(listeners))
        logger.debug("Joining the leader group with %s", redacted(config))
        self._listeners = listeners
        self._is_settled, self.reason_to_rejoin = False, None
        heartbeats = heartbeat_config(self._options) | common
        # A quota of this client id may be used up by records, which are many.
        heartbeats["client.id"] = f"{heartbeats['client.id']}-heartbeat"
        self._producer = make(DriverProducer, heartbeats)
        self._consumer = make(Consumer, config | {"on_commit": self._on_commit})
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._joined_at = time.monotonic()
        self._lookout.joined()
        self._stay(until=lambda: self._is_settled)

    def poll(self, timeout: float) -> None:
        """Serve callbacks and read heartbeats for up to `timeout` seconds."""
        try:
            self._poll(timeout)
        except JoinLater as later:
            self.reason_to_rejoin = str(later)

    def _poll(self, timeout: float) -> None:
        if self._consumer is None or self._producer is None:
            return
        self._producer.poll(0)
        if not self._positions:
            # Any call makes librdkafka check whether it may rejoin. Otherwise it checks
            # once a second, so a member that joined just before the next rebalance
            # keeps that open for up to two; until it ends, the coordinator processes
            # none of the leader's requests, proofs included.
            self._consumer.memberid()
            # It also gets no heartbeats, which would show that Kafka is back.
            self._errors.probe(self._consumer, self._topic)
        for _ in range(MAX_MESSAGES_PER_POLL):
            try:
                message = self._consumer.poll(timeout)
            except KafkaException as error:
                self._errors.note(error.args[0])
                return
            if message is None:
                break
            self._on_message(message)
            timeout = 0
        self._own()
        self._renew_fencing_tokens()
        if self._is_settled and not self._is_leaving:
            shards = {*range(len(self._listeners))}
            self._lookout.look(shards - self._positions.keys())

    def send(self, heartbeat: Heartbeat, shard: int) -> None:
        """Write it to the shard's partition; do not wait."""
        if self._producer is None:
            return
        try:
            self._producer.produce(
                self._topic,
                partition=shard,
                value=heartbeats.encode(self._lookout.signed(heartbeat, shard)),
                on_delivery=self._on_delivery,
            )
            self._producer.poll(0)
        except BufferError:
            logger.debug("Heartbeat queue full: heartbeat dropped")
        except KafkaException as error:
            self._errors.note(error.args[0])

    def confirm(self, offset: int, shard: int) -> None:
        """Commit to the group that this heartbeat was read; do not wait."""
        if self._consumer is None:
            return
        position = TopicPartition(self._topic, shard, offset + 1)
        try:
            self._consumer.commit(offsets=[position], asynchronous=True)
        except KafkaException as error:
            self._errors.note(error.args[0])

    def leave(self) -> None:
        """Give up all partitions, leave the group, drop the clients."""
        self._lookout.close()
        try:
            self._leave()
        finally:
            self._join_gate.close()

    def _leave(self) -> None:
        self._is_leaving = True
        try:
            self._stay(until=lambda: bool(self._positions))
            # Not in the callback that close() serves: there librdkafka sends no group
            # heartbeats any more, and the session might expire meanwhile.
            self._give_up([*self._positions])
        finally:
            consumer, self._consumer = self._consumer, None
            producer, self._producer = self._producer, None
            if consumer is not None:
                consumer.close()
            if producer is not None:
                producer.purge()
                producer.flush(0)
            self._listeners = ()
            self._assigned.clear()
            self._positions.clear()
            self._is_leaving = False

    def _stay(self, *, until: Callable[[], bool]) -> None:
        """Poll until `until()` is true or the minimum stay is over."""
        end = self._joined_at + MIN_STAY
        while self._consumer is not None and not until():
            if time.monotonic() >= end:
                return
            self.poll(0.05)

    # librdkafka's callbacks, served by poll() and close() on the same thread.

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._consumer is None:
            # close() is running: the client assigns and revokes them itself, and
            # calls to the consumer may hang.
            return
        # A committed offset is an old proof, never an offset to start from.
        for partition in partitions:
            partition.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        self._is_settled = True
        self._member_id = consumer.memberid()
        if self._may_meet_others:
            self._join_gate.ask()
        self._assigned.update(self._shards_of(partitions))
        self._own()

    def _own(self) -> None:
        """Own what was assigned, unless a member divides the keys differently."""
        obstacle = self._join_gate.obstacle()
        if obstacle:
            self.reason_to_rejoin = obstacle
        if obstacle != "":
            return
        for shard in sorted(self._assigned):
            self._assigned.remove(shard)
            self._positions[shard] = 0
            self._lookout.owns(shard)
            self._listeners[shard].assigned()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The broker assigns the partitions to nobody before this method returns.
        try:
            self._give_up(self._shards_of(partitions))
        finally:
            consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            for shard in self._shards_of(partitions):
                self._assigned.discard(shard)
                if self._positions.pop(shard, None) is not None:
                    self.fencing_tokens.pop(shard, None)
                    self._listeners[shard].lost()
        finally:
            consumer.incremental_unassign(partitions)

    def _give_up(self, shards: Sequence[int]) -> None:
        """Let the listeners drain, one after the other."""
        self.leaving = frozenset(shards)
        try:
            for shard in shards:
                self._let_go(shard)
        finally:
            self.leaving = frozenset()

    def _let_go(self, shard: int) -> None:
        """Let the listener drain, once for each assignment."""
        self._assigned.discard(shard)
        if shard in self._positions:
            # The rebalance that revokes the partition began a new generation.
            self._renew_fencing_tokens()
            del self._positions[shard]
            try:
                self._listeners[shard].revoked()
            finally:
                self.fencing_tokens.pop(shard, None)

    def _renew_fencing_tokens(self) -> None:
        """
        Follow the group's generations while we own partitions.

        A member that the group dropped learns a new generation only after the
        callback about the loss, and then it owns nothing any more.
        """
        if not self._options.is_exactly_once or self._consumer is None:
            return
        known = {shard: at for shard, at in self._positions.items() if at}
        if not known:
            return
        group = self._consumer.consumer_group_metadata()
        # A client that was dropped, but has not served the callback yet, has no
        # member id here, and the broker would not fence its commits.
        if self._consumer.memberid() == self._member_id:
            for shard, offset in known.items():
                position = TopicPartition(self._topic, shard, offset)
                self.fencing_tokens[shard] = FencingToken(position, group)

    def _shards_of(self, partitions: list[TopicPartition]) -> list[int]:
        """Return which of the partitions have a leader."""
        numbers = (partition.partition for partition in partitions)
        return [number for number in numbers if number < len(self._listeners)]

    def _on_message(self, message: Message) -> None:
        if (error := message.error()) is not None:
            self._errors.note(error)
            is_gone = error.code() == DriverError.UNKNOWN_TOPIC_OR_PART
            if is_gone and not self._positions:
                # The cluster came back without the topic: a join recreates it.
                self.reason_to_rejoin = "the leader topic does not exist"
            return
        if self._errors.is_failing:
            self._errors.recovered()
        heartbeat = heartbeats.read(message)
        shard, offset = message.partition(), message.offset()
        if heartbeat is None or offset is None or shard not in self._positions:
            return
        self._positions[shard] = offset + 1
        if not self._is_leaving:
            self._lookout.heard(heartbeat, shard)
        self._listeners[shard].heard(heartbeat, offset)

    def _on_commit(
        self, error: DriverError | None, partitions: list[TopicPartition]
    ) -> None:
        for partition in partitions:
            if refusal := error or partition.error:
                # A rebalance refuses commits: that is neither a proof nor an error.
                if refusal.code() not in STALE_MEMBER:
                    self._errors.note(refusal)
            elif partition.partition in self._positions:
                if self._errors.is_failing:
                    self._errors.recovered()
                self._listeners[partition.partition].confirmed(partition.offset - 1)

    def _on_delivery(self, error: DriverError | None, _: Message) -> None:
        # Heartbeats that leave() purges fail too; that is not an error.
        if error is not None and self._producer is not None:
            self._errors.note(error)
