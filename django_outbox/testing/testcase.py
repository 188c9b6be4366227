"""The outbox of a test in Django's test cases."""

from __future__ import annotations

import unittest

from .outbox_fixture import OutboxFixture


class OutboxTestCase(unittest.TestCase):
    """
    Mixin that gives each test `self.outbox`.

        class OrderTest(OutboxTestCase, TestCase): ...
    """

    outbox_database: str | None = None
    """Alias of the outbox's database; None: the setting DATABASE, else the routers'
    answer."""

    outbox: OutboxFixture
    """New for each test."""

    def setUp(self) -> None:
        """Make the outbox of this test."""
        super().setUp()
        self.outbox = OutboxFixture(self.outbox_database)
