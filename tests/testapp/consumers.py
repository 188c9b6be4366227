"""
Handlers of consumers that tests run as processes.

Topic and group come from the environment. A message may ask for a crash: its
value names the point at which the process kills itself, once for each message.
"""

from __future__ import annotations

import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Producer
from django.db import transaction

from django_outbox import ConsumedMessage, Message, consumer, stash
from django_outbox.consuming import consumer_process
from django_outbox.contrib.retry_topics import retried
from django_outbox.kafka import consumer_output
from django_outbox.message.incoming import OutgoingMessage

from .models import Effect

TOPIC = os.environ.get("TESTAPP_TOPIC", "")
GROUP = os.environ.get("TESTAPP_GROUP", "")
OUTPUT = os.environ.get("TESTAPP_OUTPUT", "")
MARKS = Path(os.environ.get("TESTAPP_MARKS", "."))
DELAYS = os.environ.get("TESTAPP_DELAYS", "")
"""Seconds before each retry, separated by commas."""
BATCH = int(os.environ.get("TESTAPP_BATCH", "1"))


def handle(message: ConsumedMessage) -> None:
    """Leave an effect and a message in the outbox."""
    text = message.text()
    if text.startswith("fail"):
        raise LookupError(text)
    if text.startswith("slow"):
        time.sleep(0.3)
    Effect.objects.create(text=text)
    stash("effects", key=text, value=text)
    if text.startswith("die before commit"):
        die_once(text)
    if text.startswith("die after commit"):
        transaction.on_commit(lambda: die_once(text))


def retry(message: ConsumedMessage) -> None:
    """Leave an effect in the topic that the text asks for, and fail in the others."""
    text = message.text()
    if (named := re.match(r"in (\S+)", text)) and not message.topic.endswith(named[1]):
        raise LookupError(text)
    if text.startswith("when allowed") and not (MARKS / "allowed").exists():
        raise LookupError(text)
    if text.startswith("unless dead") and not any(MARKS.glob("unless-dead*")):
        raise LookupError(text)
    Effect.objects.create(text=text)
    if "die before commit" in text:
        die_once(text)
    if "die after commit" in text:
        transaction.on_commit(lambda: die_once(text))


def transform(message: ConsumedMessage) -> list[Message]:
    """Say the same twice."""
    text = message.text()
    if (named := re.match(r"in (\S+)", text)) and not message.topic.endswith(named[1]):
        raise LookupError(text)
    if text.startswith("fail"):
        raise LookupError(text)
    if text.startswith("die in handler"):
        die_once(text)
    if text.startswith(("die around commit", "freeze")):
        MortalClient.last_words.append(text)
    return [Message(OUTPUT, key=text, value=f"{text}/{n}") for n in range(2)]


def die_once(text: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Kill or stop this process, unless this message has done so before."""
    if is_first(text):
        os.kill(os.getpid(), number)


def is_first(text: str) -> bool:
    """Whether this is the first time that any process asks with this text."""
    try:
        (MARKS / text.replace(" ", "-")).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class MortalSender(consumer_output.KafkaDeadLetters):
    """Dies before or after a message goes to another topic, once for each topic."""

    def send(self, message: OutgoingMessage) -> None:
        assert isinstance(message.value, bytes)
        text = message.value.decode()
        if "die before hand-over" in text:
            die_once(f"{text} to {message.topic}")
        super().send(message)
        if "die after hand-over" in text:
            die_once(f"{text} to {message.topic}")


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


if TOPIC and DELAYS:
    consumer_process.KafkaDeadLetters = MortalSender  # type: ignore[attr-defined,misc]
    retried(
        TOPIC,
        group=GROUP,
        delays=[timedelta(seconds=float(text)) for text in DELAYS.split(",")],
        batch=BATCH,
        transforms=bool(OUTPUT),
    )(transform if OUTPUT else retry)
elif TOPIC and OUTPUT:
    consumer_output.Client = MortalClient  # type: ignore[attr-defined,misc]
    consumer(TOPIC, group=GROUP, transforms=True)(transform)
elif TOPIC:
    consumer(TOPIC, group=GROUP, batch=BATCH)(handle)
