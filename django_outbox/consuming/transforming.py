"""
The worker of handlers that only transform: consume, transform, produce.

Handlers run first; their output and the offsets of their input then go out in
one Kafka transaction, which is open for moments only. A reader that reads
committed messages sees the output of each input once.

The outcome of a transaction that met with trouble is not guessed: its offsets
carry a token, and the group is asked which token it has.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..exceptions import KafkaError, RecordPoisoned
from ..message.incoming import ConsumedMessage, OutgoingMessage
from .dead_letters import is_about_the_letter
from .job import ConsumerContext
from .output import Output
from .ports import CommittedTokens, Transactions

logger = logging.getLogger(__name__)

LONGEST: Final = 1.0
"""Seconds after which what is done goes out, and the group is served."""


class _Trial(NamedTuple):
    """The message that fails, and what has come of it so far."""

    message: ConsumedMessage
    attempts: int
    error: Exception
    letters: tuple[OutgoingMessage, ...] = ()
    """The dead letter, once its attempts are spent, and what may go instead."""
    refusals: int = 0
    """How often no version of the dead letter was accepted."""


class TransformWorker:
    """Works messages off into other topics; for one thread."""

    limit: Final = 500
    """Messages of one round: what a transaction holds at most."""

    def __init__(
        self,
        job: ConsumerContext,
        *,
        output: Output,
        transactions: Transactions,
        tokens: CommittedTokens,
    ) -> None:
        self._job = job
        self._output = output
        self._transactions = transactions
        self._tokens = tokens
        self._batch = self.limit
        self._trial: _Trial | None = None

    def start(self) -> None:
        """End what a process of the same name has left open when it died."""
        tries = 0
        while not self._job.stop.is_set():
            try:
                self._transactions.renew()
            except KafkaError as error:
                tries += 1
                logger.debug("There can be no transactions yet: %s", error)
                self._job.stop.wait(self._job.patience.delay(tries))
            else:
                return

    def work(self, messages: Sequence[ConsumedMessage]) -> None:
        """See to these messages, unless their partitions or the process go."""
        left = list(messages)
        while left and not self._job.stop.is_set():
            del left[: self._step(left)]
            self._job.membership.serve()
            left = [message for message in left if self._job.membership.owns(message)]

    def close(self) -> None:
        """Let clients go."""
        self._transactions.close()

    def _step(self, messages: Sequence[ConsumedMessage]) -> int:
        """Send the output of the first messages; return how many were done."""
        letters: list[OutgoingMessage] = []
        chunk: list[ConsumedMessage] = []
        until = time.monotonic() + LONGEST
        for message in messages[: self._batch]:
            try:
                letters += self._letters(message)
            except Exception as error:  # noqa: BLE001  # handlers raise anything
                if not chunk:
                    self._failed(message, error)
                # What precedes it goes out first.
                break
            chunk.append(message)
            if self._job.stop.is_set() or time.monotonic() >= until:
                break
        if not chunk:
            return 0
        try:
            is_done = self._send(letters, chunk)
        except RecordPoisoned as error:
            if len(chunk) == 1:
                self._failed(chunk[0], error)
            self._batch = 1
            return 0
        if not is_done:
            return 0
        self._batch = min(self.limit, self._batch * 2)
        self._count(chunk)
        return len(chunk)

    def _letters(self, message: ConsumedMessage) -> list[OutgoingMessage]:
        if (trial := self._dying(message)) is not None:
            return [trial.letters[0]]
        return self._output.letters(self._job.group.of(message.topic), message)

    def _dying(self, message: ConsumedMessage) -> _Trial | None:
        """Return the trial of a message that is to become a dead letter."""
        trial = self._trial
        is_dying = trial and trial.letters and trial.message == message
        return trial if is_dying else None

    def _failed(self, message: ConsumedMessage, error: Exception) -> None:
        if (dying := self._dying(message)) is not None:
            self._trial = self._refused(dying, error)
            return
        trial = self._trial
        attempts = 1
        if trial and trial.message == message:
            attempts += trial.attempts
        self._job.progress.failed(message, error, attempts)
        letters: tuple[OutgoingMessage, ...] = ()
        if self._job.patience.is_spent(attempts):
            letters = self._job.dead_letters(message, error, attempts)
        self._trial = _Trial(message, attempts, error, letters)
        if not letters:
            self._job.wait(attempts)

    def _refused(self, trial: _Trial, error: Exception) -> _Trial:
        """Go on with a smaller dead letter, or wait until this one is accepted."""
        _, *smaller = trial.letters
        is_poison = isinstance(error, RecordPoisoned) and is_about_the_letter(error)
        if smaller and is_poison:
            self._job.cut(trial.message, error)
            return trial._replace(letters=tuple(smaller))
        refusals = trial.refusals + 1
        self._job.refuse(trial.message, error, refusals)
        return trial._replace(refusals=refusals)

    def _count(self, chunk: Sequence[ConsumedMessage]) -> None:
        trial, self._trial = self._trial, None
        for message in chunk:
            if trial and trial.letters and trial.message == message:
                self._job.progress.set_aside(message, trial.error, trial.attempts)
            else:
                self._job.progress.did(is_first=True)

    def _send(
        self, letters: Sequence[OutgoingMessage], chunk: Sequence[ConsumedMessage]
    ) -> bool:
        """Send them in one transaction; return whether it is committed."""
        positions = {message.place: message.offset + 1 for message in chunk}
        token = uuid.uuid4().hex
        try:
            self._transactions.send(letters, positions, token)
        except RecordPoisoned:
            raise
        except KafkaError as error:
            logger.warning(
                "A transaction met with trouble; asking what became of it: %s",
                error,
                extra={"action": "transaction_failed"},
            )
            return self._has_committed(chunk, token)
        return True

    def _has_committed(self, chunk: Sequence[ConsumedMessage], token: str) -> bool:
        tries = 0
        while not self._job.stop.is_set():
            tries += 1
            self._job.wait(tries)
            mine = [m.place for m in chunk if self._job.membership.owns(m)]
            if not mine:
                return False
            try:
                self._transactions.renew()
                return self._tokens.token(mine[0]) == token
            except KafkaError as error:
                logger.debug("The outcome cannot be asked for yet: %s", error)
        return False
