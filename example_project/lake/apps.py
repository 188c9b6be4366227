"""The lake as a Django app; installed when `OUTBOX_PIPELINE_LAKE` names one."""

from __future__ import annotations

from django.apps import AppConfig


class LakeConfig(AppConfig):
    """The lake."""

    name = "lake"

    def ready(self) -> None:
        """Connect the leader tasks to the signals."""
        # The harvester's process needs the leader tasks, too.
        from . import tasks  # noqa: F401
