"""
The outbox in the admin: for the person who is on call.

======================  ======================================================
bounded_pages.py        what all pages share: they change nothing, count to a
                        limit, and search by ids
record_pages.py         waiting, blocked, parked and staged records
series_page.py          series, open and closed
record_actions.py       park, skip, release: with a note in the admin log
replay_page.py          sending archived records again
live_page.py            leader, rates, backlog and latency as moving charts
======================  ======================================================

Messages cannot be added or changed. Only users with the permission
`django_outbox.view_payload` see keys, values and headers. Whatever changes a record
has a permission of its own, and asks before it drops.
"""

from __future__ import annotations

from .record_pages import OutboxRecordAdmin, ParkedRecordAdmin, StagedRecordAdmin
from .series_page import SeriesAdmin

__all__ = ["OutboxRecordAdmin", "ParkedRecordAdmin", "SeriesAdmin", "StagedRecordAdmin"]
