"""
What an operator pauses and resumes: a topic, one of its keys, or the whole outbox.

A pause is a row of a table, so it outlives every process. The leader looks for it once
a second; what is on its way by then is still delivered.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from django.db.models import Q

from ..message.limits import check_key, check_topic_name
from ..models import Pause

logger = logging.getLogger(__name__)

EVERYTHING: Final = ""
"""In place of a topic: all of them."""

MAX_REASON: Final = 200
"""Characters of a reason that are kept."""


def pause(alias: str, topic: str, key: str | None = None, *, reason: str = "") -> bool:
    """
    Keep records in the table; return False if that pause was there already.

    Args:
        topic: the topic, or `EVERYTHING`.
        key: only the records with this key.
        reason: for those who find the pause; its first 200 characters are kept.

    Raises:
        InvalidMessage: no record can have this topic or this key.
    """
    if topic != EVERYTHING:
        check_topic_name(topic)
    if key is not None:
        check_key(key)
    _, is_new = Pause.objects.using(alias).get_or_create(
        kafka_topic=topic, kafka_key=key, defaults={"reason": reason[:MAX_REASON]}
    )
    if is_new:
        _log("Paused %s by hand", "pause", topic, key)
    return is_new


def resume(alias: str, topic: str, key: str | None = None) -> int:
    """
    End a pause; return how many pauses have ended.

    Args:
        topic: the topic, or `EVERYTHING`: all pauses end.
        key: the key, if only that is paused.
    """
    rows = Pause.objects.using(alias)
    if topic != EVERYTHING:
        is_it = Q(kafka_key__isnull=True) if key is None else Q(kafka_key=key)
        rows = rows.filter(is_it, kafka_topic=topic)
    ended, _models = rows.delete()
    if ended:
        _log("Resumed %s by hand", "resume", topic, key)
    return ended


def pauses(alias: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Return what is paused, the oldest first, ready for JSON."""
    columns = ("kafka_topic", "kafka_key", "paused_at", "reason")
    return list(Pause.objects.using(alias).order_by("id").values(*columns)[:limit])


def name_of(topic: str, key: str | None = None, *, with_key: bool = True) -> str:
    """
    Name what is paused, for people.

    Args:
        with_key: tell the key, which is part of the payload.
    """
    if topic == EVERYTHING:
        return "everything"
    if key is None:
        return topic
    return f"key {key} of {topic}" if with_key else f"one key of {topic}"


def _log(text: str, action: str, topic: str, key: str | None) -> None:
    # A log is read by many.
    what = name_of(topic, key, with_key=False)
    logger.info(text, what, extra={"action": action, "topic": topic})
