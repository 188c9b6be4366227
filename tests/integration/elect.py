"""
A process that does nothing but stand in the leader group.

    python -m tests.integration.elect NAME GROUP BOOTSTRAP_SERVERS

Prints each event as a JSON line, with the moment up to which the last term was
trusted; ends in good order on SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys

from django_outbox.clock import boottime
from django_outbox.election.elector import Elector
from django_outbox.election.settings import ElectionSettings
from django_outbox.events import Event
from django_outbox.kafka.membership import KafkaMembership
from django_outbox.settings.options import OutboxSettings


def main(name: str, group: str, bootstrap_servers: str) -> None:
    options = OutboxSettings(
        LEADER_TOPIC=group,
        LEADER_GROUP=group,
        SESSION_TIMEOUT=3.0,
        HEARTBEAT_TIMEOUT=1.4,
        HEARTBEAT_INTERVAL=0.2,
        MAX_POLL_INTERVAL=8.0,
        KAFKA={"bootstrap.servers": bootstrap_servers},
    )
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _: stopping.append(signum))
    trusted_until = 0.0

    def tell(event: Event) -> None:
        line = {
            "event": event.kind,
            "leader_id": event.leader_id,
            "boottime_ns": event.boottime_ns,
            "trusted_until_ns": round(trusted_until * 1e9),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    elector = Elector(
        ElectionSettings(
            name=name,
            heartbeat_timeout=options.HEARTBEAT_TIMEOUT,
            heartbeat_interval=options.HEARTBEAT_INTERVAL,
        ),
        KafkaMembership(options, name=name),
        clock=boottime,
        on_event=tell,
        barrier=lambda _: None,
        can_join=lambda: True,
    )
    while not stopping:
        elector.step()
        if term := elector.leaderships[0].term:
            trusted_until = term.trusted_until
    elector.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
