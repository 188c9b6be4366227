"""
Handlers of consumers that tests run as processes.

Topic and group come from the environment. A message may ask for a crash: its
value names the point at which the process kills itself, once for each message.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Producer
from django.db import transaction

from django_outbox import ConsumedMessage, Message, consumer, stash
from django_outbox.kafka import consumer_output

from .models import Effect

TOPIC = os.environ.get("TESTAPP_TOPIC", "")
GROUP = os.environ.get("TESTAPP_GROUP", "")
OUTPUT = os.environ.get("TESTAPP_OUTPUT", "")
MARKS = Path(os.environ.get("TESTAPP_MARKS", "."))


def handle(message: ConsumedMessage) -> None:
    """Leave an effect and a message in the outbox."""
    text = message.text()
    if text.startswith("fail"):
        raise LookupError(text)
    Effect.objects.create(text=text)
    stash("effects", key=text, value=text)
    if text.startswith("die before commit"):
        die_once(text)
    if text.startswith("die after commit"):
        transaction.on_commit(lambda: die_once(text))


def transform(message: ConsumedMessage) -> list[Message]:
    """Say the same twice."""
    text = message.text()
    if text.startswith("fail"):
        raise LookupError(text)
    if text.startswith("die in handler"):
        die_once(text)
    if text.startswith(("die around commit", "freeze")):
        MortalClient.last_words.append(text)
    return [Message(OUTPUT, key=text, value=f"{text}/{n}") for n in range(2)]


def die_once(text: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Kill or stop this process, unless this message has done so before."""
    try:
        (MARKS / text.replace(" ", "-")).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), number)


class MortalClient(Producer):
    """Dies before or after a commit, when a message has asked for it."""

    last_words: ClassVar[list[str]] = []
    """Of the present transaction: several messages may ask for it."""

    def commit_transaction(self, *args: Any) -> None:
        last_words = [*self.last_words]
        self.last_words.clear()
        for words in last_words:
            if words.startswith("die around commit before"):
                die_once(words)
            if words.startswith("freeze before commit"):
                die_once(words, signal.SIGSTOP)
        super().commit_transaction(*args)
        for words in last_words:
            if words.startswith("die around commit after"):
                die_once(words)


if TOPIC and OUTPUT:
    consumer_output.Client = MortalClient  # type: ignore[attr-defined,misc]
    consumer(TOPIC, group=GROUP, transforms=True)(transform)
elif TOPIC:
    consumer(TOPIC, group=GROUP)(handle)
