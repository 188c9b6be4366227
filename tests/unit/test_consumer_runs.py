"""What `run_consumer()` refuses before it runs a handler."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox import ConfigurationError, ConsumedMessage
from django_outbox.testing import run_consumer


@pytest.mark.parametrize("dies", ["before_commit", "", True])
def test_a_consumer_dies_before_or_after_the_commit(dies: Any) -> None:
    """A typing error would test another death, or none."""
    known = "'before-commit' or 'after-commit', or None"
    with pytest.raises(ConfigurationError, match=f"dies={dies!r} must be {known}"):
        run_consumer(print, ConsumedMessage(topic="orders"), dies=dies)
