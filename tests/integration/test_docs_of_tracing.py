"""The how-to on tracing is executed, block by block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from django_outbox.models import ProcessedMessage

from .spans import allow_another_provider

PAGE = (Path(__file__).parents[2] / "docs/howto/tracing.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.django_db(transaction=True)
def test_the_page_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_another_provider(monkeypatch)
    names: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"block {number} of tracing.md", "exec"), names)  # noqa: S102
    assert len(names["spans"].get_finished_spans()) == 3
    assert ProcessedMessage.objects.count() == 1


def test_the_page_has_every_attribute_of_ours() -> None:
    source = (
        Path(__file__).parents[2] / "django_outbox/observability/tracing.py"
    ).read_text("utf-8")
    ours = set(re.findall(r'f"\{_SCOPE\}(\.\w+)"', source))
    assert len(ours) == 5
    shown = set(re.findall(r"`django_outbox(\.\w+)`", PAGE))
    assert shown == ours
