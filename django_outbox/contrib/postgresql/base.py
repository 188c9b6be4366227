"""Django's backend for PostgreSQL, with hooks before a commit."""

from __future__ import annotations

from django.db.backends.postgresql import base

from ..commit_hooks import CommitHooks


class DatabaseWrapper(CommitHooks, base.DatabaseWrapper):
    """Django's own, which writes late messages before it commits."""
