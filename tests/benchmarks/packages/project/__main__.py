"""
What a side runs, in the packages' environment.

    python -m project fill django-jaiminho <topic> <records> <keys> <size>
    python -m project relay django-jaiminho

Tables are filled as applications do it, all in one transaction. A relay runs
until it is ended; its first line on standard output says when it has begun.
"""

from __future__ import annotations

import json
import sys
import time

import django
from django.core.management import call_command
from django.db import transaction
from django.db.backends.signals import connection_created

RELAYS = {
    "django-outbox-pattern": ["publish"],
    "django-jaiminho": ["events_relay", "--run-in-loop"],
    "django-celery-outbox": ["celery_outbox_relay"],
}


def fill(package: str, topic: str, records: int, keys: int, size: int) -> None:
    """Write that many messages."""
    from django_outbox_pattern.models import (  # type: ignore[import-not-found]
        Published,
    )

    from .publishing import app, publish

    with transaction.atomic():
        for id in range(records):
            key, value = f"key-{id % keys}", "x" * size
            if package == "django-outbox-pattern":
                # Sent as JSON: with quotes around it.
                headers = {"key": key, "id": str(id)}
                Published(destination=topic, body=value[2:], headers=headers).save()
            elif package == "django-jaiminho":
                publish(topic, value, key, id)
            else:
                app.send_task("task", [key, value], task_id=str(id), queue=topic)


def relay(package: str) -> None:
    """Run the package's own command."""
    connection_created.connect(_tell_begin)
    call_command(*RELAYS[package])


def _tell_begin(**_: object) -> None:
    connection_created.disconnect(_tell_begin)
    event = {
        "event": "begun",
        "boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        "cpu_seconds": time.process_time(),
    }
    sys.stdout.write(f"{json.dumps(event)}\n")
    sys.stdout.flush()


def main(task: str, package: str, *arguments: str) -> None:
    """Run one of the two."""
    django.setup()
    if task == "relay":
        relay(package)
    else:
        topic, *numbers = arguments
        records, keys, size = map(int, numbers)
        fill(package, topic, records, keys, size)


if __name__ == "__main__":
    main(*sys.argv[1:])
