"""
The worker of handlers that only transform: consume, transform, produce.

Handlers run first; then their output and the offsets of their input are sent in
one Kafka transaction, which is open for moments only. A consumer that reads
committed messages sees the output of each input once.

After an error the outcome of a transaction is not guessed: its offsets carry a
token, and the token of the group's committed offset shows the outcome.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..exceptions import KafkaError, RecordPoisoned
from ..message.incoming import ConsumedMessage, OutgoingMessage
from .connections import close_unusable_connections
from .consumer_context import ConsumerContext
from .dead_letters import may_accept_smaller
from .effects import MAX_BATCH_TIME
from .outages import is_service_unavailable
from .output import Output
from .ports import CommittedTokens, Transactions

logger = logging.getLogger(__name__)


class _FailingMessage(NamedTuple):
    """The message that keeps failing, and its attempts so far."""

    message: ConsumedMessage
    attempts: int
    error: Exception
    dead_letters: tuple[OutgoingMessage, ...] = ()
    """The versions of its dead letter, once its attempts are spent."""
    refusals: int = 0
    """How often the dead letter was refused for good."""


class TransformWorker:
    """Processes messages into other topics; for one thread."""

    limit: Final = 500
    """Messages of one round, and of one transaction, at most."""

    def __init__(
        self,
        context: ConsumerContext,
        *,
        output: Output,
        transactions: Transactions,
        tokens: CommittedTokens,
    ) -> None:
        self._context = context
        self._output = output
        self._transactions = transactions
        self._tokens = tokens
        self._batch = self.limit
        self._failing: _FailingMessage | None = None
        self._outages = 0
        """Attempts in a row that a database or the schema registry has not answered."""

    def start(self) -> None:
        """End a transaction that a dead process of the same name left open."""
        tries = 0
        while not self._context.stop.is_set():
            try:
                self._transactions.renew()
            except KafkaError as error:
                tries += 1
                logger.debug("Cannot start transactions yet: %s", error)
                self._context.stop.wait(self._context.retry.delay(tries))
            else:
                return

    def work(self, messages: Sequence[ConsumedMessage]) -> None:
        """Process messages while we own their partitions and the process runs."""
        left = list(messages)
        while left and not self._context.stop.is_set():
            if done := self._step(left):
                del left[:done]
                self._context.report()
            self._context.membership.serve()
            left = [
                message for message in left if self._context.membership.owns(message)
            ]

    def rest(self) -> None:
        """Close a client that has had nothing to send for a while."""
        self._transactions.rest()

    def close(self) -> None:
        """Close clients."""
        self._transactions.close()

    def _step(self, messages: Sequence[ConsumedMessage]) -> int:
        """Process the first messages; return how many are done."""
        close_unusable_connections()
        output: list[OutgoingMessage] = []
        chunk: list[ConsumedMessage] = []
        began = time.monotonic()
        times = self._context.progress.times
        for message in messages[: self._batch]:
            try:
                output += self._output_of(message)
            except Exception as error:  # noqa: BLE001  # handlers raise anything
                if not chunk:
                    times.add(time.monotonic() - began)
                    self._failed_or_waits(message, error)
                # The output of the messages before it goes first.
                break
            self._outages = 0
            chunk.append(message)
            is_late = time.monotonic() - began >= MAX_BATCH_TIME
            if self._context.stop.is_set() or is_late:
                break
        if not chunk:
            return 0
        try:
            is_done = self._send(output, chunk)
        except RecordPoisoned as error:
            if len(chunk) == 1:
                self._failed(chunk[0], error)
            self._batch = 1
            return 0
        if not is_done:
            # Perhaps the output is more than the link delivers in time.
            self._batch = max(1, len(chunk) // 2)
            return 0
        times.add(time.monotonic() - began, messages=len(chunk))
        self._batch = min(self.limit, self._batch * 2)
        self._count(chunk)
        return len(chunk)

    def _output_of(self, message: ConsumedMessage) -> list[OutgoingMessage]:
        if (failing := self._given_up(message)) is not None:
            return [failing.dead_letters[0]]
        return self._output.messages(self._context.group.of(message.topic), message)

    def _given_up(self, message: ConsumedMessage) -> _FailingMessage | None:
        """Return the failing message if this is it and its attempts are spent."""
        failing = self._failing
        is_given_up = failing and failing.dead_letters and failing.message == message
        return failing if is_given_up else None

    def _failed_or_waits(self, message: ConsumedMessage, error: Exception) -> None:
        """Count an attempt, but for an outage: that is waited for."""
        if not is_service_unavailable(error):
            self._failed(message, error)
            return
        self._outages += 1
        self._context.wait_for_recovery(error, self._outages)

    def _failed(self, message: ConsumedMessage, error: Exception) -> None:
        if (given_up := self._given_up(message)) is not None:
            self._failing = self._refused(given_up, error)
            return
        failing = self._failing
        attempts = 1
        if failing and failing.message == message:
            attempts += failing.attempts
        self._context.progress.failed(message, error, attempts)
        dead_letters: tuple[OutgoingMessage, ...] = ()
        if self._context.is_spent(message, attempts):
            dead_letters = self._context.dead_letters(message, error, attempts)
        self._failing = _FailingMessage(message, attempts, error, dead_letters)
        if not dead_letters:
            self._context.wait(attempts)

    def _refused(self, failing: _FailingMessage, error: Exception) -> _FailingMessage:
        """Continue with a smaller dead letter, or wait and retry this one."""
        _, *smaller = failing.dead_letters
        is_poison = isinstance(error, RecordPoisoned) and may_accept_smaller(error)
        if smaller and is_poison:
            self._context.cut(failing.message, error)
            return failing._replace(dead_letters=tuple(smaller))
        refusals = failing.refusals + 1
        self._context.refuse(failing.message, error, refusals)
        return failing._replace(refusals=refusals)

    def _count(self, chunk: Sequence[ConsumedMessage]) -> None:
        for message in chunk:
            if (failing := self._given_up(message)) is not None:
                self._context.set_aside(
                    message,
                    failing.error,
                    failing.attempts,
                    topic=failing.dead_letters[0].topic,
                )
            else:
                self._context.progress.did(is_first=True)
        self._failing = None

    def _send(
        self, output: Sequence[OutgoingMessage], chunk: Sequence[ConsumedMessage]
    ) -> bool:
        """Send output and offsets in one transaction; return whether it committed."""
        offsets = {message.topic_partition: message.offset + 1 for message in chunk}
        token = uuid.uuid4().hex
        try:
            self._transactions.send(output, offsets, token)
        except RecordPoisoned:
            raise
        except KafkaError as error:
            logger.warning(
                "Transaction failed; checking whether it was committed: %s",
                error,
                extra={"action": "transaction_failed"},
            )
        else:
            return True
        # Not while the error is handled: it holds the failed client, and this takes as
        # long as Kafka is away.
        return self._has_committed(chunk, token)

    def _has_committed(self, chunk: Sequence[ConsumedMessage], token: str) -> bool:
        tries = 0
        while not self._context.stop.is_set():
            tries += 1
            self._context.wait(tries)
            mine = [
                m.topic_partition for m in chunk if self._context.membership.owns(m)
            ]
            if not mine:
                return False
            try:
                self._transactions.renew()
                return self._tokens.token(mine[0]) == token
            except KafkaError as error:
                logger.debug(
                    "Cannot check the outcome of the transaction yet: %s", error
                )
        return False
