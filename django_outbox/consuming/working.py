"""
The worker of handlers with effects: one message after the other.

A message is tried until its effects are committed, or its attempts are spent
and it is a dead letter. What is away, database or broker, counts as no attempt
and is waited for, in the group, so that no message is lost or passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.db import close_old_connections

from ..exceptions import KafkaError, RecordPoisoned, StaleOffset
from ..message.incoming import ConsumedMessage
from .dead_letters import is_about_the_letter
from .effects import TransactionalHandler, is_away
from .job import ConsumerContext
from .ports import DeadLetters, Offsets


class EffectsWorker:
    """Works messages off into the database; for one thread."""

    limit: Final = 1
    """Messages of one round: between two the group is served."""

    def __init__(
        self,
        job: ConsumerContext,
        *,
        effects: TransactionalHandler,
        offsets: Offsets,
        dead_letters: DeadLetters,
    ) -> None:
        self._job = job
        self._effects = effects
        self._offsets = offsets
        self._dead_letters = dead_letters

    def start(self) -> None:
        """There is nothing to make ready."""

    def work(self, messages: Sequence[ConsumedMessage]) -> None:
        """See to these messages, unless their partition or the process goes."""
        for message in messages:
            self._see_to(message)

    def close(self) -> None:
        """Let clients go."""
        self._dead_letters.close()

    def _see_to(self, message: ConsumedMessage) -> None:
        attempts = outages = 0
        while self._job.goes_on_with(message):
            close_old_connections()
            try:
                is_first = self._effects.apply(message)
            except StaleOffset:
                raise
            except Exception as error:  # noqa: BLE001  # handlers raise anything
                if is_away(error):
                    outages += 1
                    self._job.wait_out(error, outages)
                    continue
                outages = 0
                attempts += 1
                self._job.progress.failed(message, error, attempts)
                if self._job.patience.is_spent(attempts):
                    self._set_aside(message, error, attempts)
                    return
                self._job.wait(attempts)
            else:
                self._job.progress.did(is_first=is_first)
                self._offsets.done(message)
                return

    def _set_aside(
        self, message: ConsumedMessage, error: Exception, attempts: int
    ) -> None:
        letter, *smaller = self._job.dead_letters(message, error, attempts)
        outages = 0
        while self._job.goes_on_with(message):
            close_old_connections()
            try:
                self._dead_letters.send(letter)
                self._effects.skip(message)
            except RecordPoisoned as refusal:
                if smaller and is_about_the_letter(refusal):
                    self._job.cut(message, refusal)
                    letter = smaller.pop(0)
                    continue
                outages += 1
                self._job.refuse(message, refusal, outages)
            except Exception as trouble:
                if not isinstance(trouble, KafkaError) and not is_away(trouble):
                    raise
                outages += 1
                self._job.wait_out(trouble, outages)
            else:
                self._job.progress.set_aside(message, error, attempts)
                self._offsets.done(message)
                return
