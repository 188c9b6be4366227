"""
How long things take in a history: the shipped defaults, ten times faster.

The proportions are those of a real harvester; only the waits that mean
nothing for the promises are coarser, which keeps a history short.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from django_outbox.election.settings import ElectionSettings
from django_outbox.options import OutboxSettings
from django_outbox.postgres.connection import Limits
from django_outbox.relay.dispatch import Pace

SPEED: Final = 10.0
