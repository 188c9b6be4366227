"""The example's project package. Loads Celery, as Celery's Django guide has it."""

from __future__ import annotations

from .celery import app as celery_app

__all__ = ["celery_app"]
