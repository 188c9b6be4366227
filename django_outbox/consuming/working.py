"""
The worker of handlers with effects: one message after the other, or in batches.

It retries a message until its effects are committed, or its attempts are spent
and its dead letter is sent. An outage of the database or the broker is not an
attempt: the worker waits in the group, and no message is lost or skipped.

The messages of a batch share a transaction. If it rolls back, for whatever reason,
each of them is processed alone, which tells the guilty one and its attempts. The group
is served after each transaction, since handlers may be slow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..exceptions import KafkaError, RecordPoisoned, StaleOffset
from ..message.incoming import ConsumedMessage
from .connections import close_unusable_connections
from .consumer_context import ConsumerContext
from .dead_letters import may_accept_smaller
from .effects import TransactionalHandler
from .outages import is_service_unavailable
from .ports import DeadLetters, Offsets

logger = logging.getLogger(__name__)


class EffectsWorker:
    """Processes messages into the database; for one thread."""

    def __init__(
        self,
        context: ConsumerContext,
        *,
        effects: TransactionalHandler,
        offsets: Offsets,
        dead_letters: DeadLetters,
    ) -> None:
        self.limit = context.group.batch
        """Messages of one round."""
        self._context = context
        self._effects = effects
        self._offsets = offsets
        self._dead_letters = dead_letters

    def start(self) -> None:
        """Do nothing: the first message needs no preparation."""

    def work(self, messages: Sequence[ConsumedMessage]) -> None:
        """Process messages while we own their partitions and the process runs."""
        left = list(messages)
        if self.limit > 1:
            while done := self._process_together(left):
                del left[:done]
                if left:
                    self._between()
        for number, message in enumerate(left):
            if number:
                self._between()
            self._process(message)

    def rest(self) -> None:
        """Close a client that has had nothing to send for a while."""
        self._dead_letters.rest()

    def close(self) -> None:
        """Close clients."""
        self._dead_letters.close()

    def _between(self) -> None:
        self._context.membership.serve()
        self._context.report()

    def _process_together(self, messages: Sequence[ConsumedMessage]) -> int:
        """Process the first messages in one transaction; return how many are done."""
        is_alone = len(messages) < 2
        if is_alone or not all(map(self._context.should_continue, messages)):
            return 0
        close_unusable_connections()
        began = time.monotonic()
        try:
            ran = self._effects.apply_all(messages)
        except StaleOffset:
            raise
        except Exception as error:  # noqa: BLE001  # handlers raise anything
            logger.debug("A batch of %d rolled back: %s", len(messages), error)
            # Its time and that of the first message alone may be too much together.
            self._context.membership.serve()
            return 0
        times = self._context.progress.times
        times.add(time.monotonic() - began, messages=len(ran))
        for message, is_first in zip(messages, ran, strict=False):
            self._context.progress.did(is_first=is_first)
            self._offsets.done(message)
        return len(ran)

    def _process(self, message: ConsumedMessage) -> None:
        attempts = outages = 0
        while self._context.should_continue(message):
            close_unusable_connections()
            began = time.monotonic()
            try:
                is_first = self._effects.apply(message)
            except StaleOffset:
                raise
            except Exception as error:  # noqa: BLE001  # handlers raise anything
                if is_service_unavailable(error):
                    outages += 1
                    self._context.wait_for_recovery(error, outages)
                    continue
                outages = 0
                attempts += 1
                self._context.progress.times.add(time.monotonic() - began)
                self._context.progress.failed(message, error, attempts)
                if self._context.is_spent(message, attempts):
                    self._set_aside(message, error, attempts)
                    return
                self._context.wait(attempts)
            else:
                self._context.progress.times.add(time.monotonic() - began)
                self._context.progress.did(is_first=is_first)
                self._offsets.done(message)
                return

    def _set_aside(
        self, message: ConsumedMessage, error: Exception, attempts: int
    ) -> None:
        dead_letter, *smaller = self._context.dead_letters(message, error, attempts)
        outages = 0
        is_sent = False
        while self._context.should_continue(message):
            close_unusable_connections()
            try:
                if not is_sent:
                    self._dead_letters.send(dead_letter)
                    is_sent = True
                self._effects.skip(message)
            except RecordPoisoned as refusal:
                if smaller and may_accept_smaller(refusal):
                    self._context.cut(message, refusal)
                    dead_letter = smaller.pop(0)
                    continue
                outages += 1
                self._context.refuse(message, refusal, outages)
            except Exception as failure:
                if not isinstance(failure, KafkaError) and not is_service_unavailable(
                    failure
                ):
                    raise
                outages += 1
                self._context.wait_for_recovery(failure, outages)
            else:
                self._context.set_aside(
                    message, error, attempts, topic=dead_letter.topic
                )
                self._offsets.done(message)
                return
