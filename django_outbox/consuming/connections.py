"""How long a consumer keeps its connections to databases."""

from __future__ import annotations

from django.db import connections


def close_unusable_connections() -> None:
    """
    Close connections that have failed, or are older than a CONN_MAX_AGE above zero.

    CONN_MAX_AGE = 0, the default, means a connection for each request. A consumer that
    connected for each message would spend most of its time on that, so it keeps the
    connection as long as messages come.
    """
    _close(per_request_at=None)


def close_idle_connections() -> None:
    """
    Close connections that no message needs now.

    These are the same as at the end of a request: those with a CONN_MAX_AGE above zero
    stay open until they are that old.
    """
    _close(per_request_at=0.0)


def close_connections() -> None:
    """
    Close all connections, after an outage.

    Django connects again when a transaction fails. If that connection is lost while
    the next attempt is waited for, nothing tells, and the attempt would fail, too.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def _close(*, per_request_at: float | None) -> None:
    """Close what is over; CONN_MAX_AGE = 0 counts as over at this monotonic time."""
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["CONN_MAX_AGE"] == 0:
            connection.close_at = per_request_at
        connection.close_if_unusable_or_obsolete()
