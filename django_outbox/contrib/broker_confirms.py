"""
Whether Celery's broker confirms what it was sent.

A RabbitMQ that is not asked to confirm answers nothing: a task that it never got would
count as sent. Redis answers each command.
"""

from __future__ import annotations

from typing import Any

from ..exceptions import ConfigurationError


def require_confirms(app: Any) -> None:
    """
    Check the settings of a Celery app; connect to nothing.

    Raises:
        ConfigurationError: its broker would lose a task without an error.
    """
    with app.connection_for_write() as connection:
        is_silent = connection.get_transport_cls().driver_type == "amqp"
        if is_silent and not connection.transport_options.get("confirm_publish"):
            raise ConfigurationError(
                "Celery's broker_transport_options: set 'confirm_publish' to True. "
                "Without it a task that RabbitMQ never got counts as sent."
            )
