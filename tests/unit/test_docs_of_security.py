"""The page on security shows settings that are accepted, and links that lead on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from django_outbox.kafka.validation import check_properties
from django_outbox.settings.options import OutboxSettings
from django_outbox.settings.rules import problems

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "operations/security.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def settings_of(block: str) -> dict[str, Any]:
    values: dict[str, Any] = {"os": os}
    exec(compile(block, "security.md", "exec"), values)  # noqa: S102  # the page's own
    return values


@pytest.mark.parametrize("block", [b for b in BLOCKS if "KAFKA =" in b])
def test_every_client_accepts_the_settings(
    block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.setenv("KAFKA_CLIENT_SECRET", "secret")
    kafka = settings_of(block)["KAFKA"]
    assert list(problems({"KAFKA": kafka})) == []
    # The files are not here.
    kept = {name: v for name, v in kafka.items() if not name.endswith(".location")}
    check_properties(OutboxSettings(DELIVERY="exactly-once", KAFKA=kept))


def test_the_database_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    (block,) = [b for b in BLOCKS if "DATABASES" in b]
    options = settings_of(block)["DATABASES"]["default"]["OPTIONS"]
    assert options["sslmode"] == "verify-full"


def test_every_link_leads_to_a_heading() -> None:
    for path, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGE):
        page = (DOCS / "operations" / path).read_text("utf-8") if path else PAGE
        headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
        anchors = {
            re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings
        }
        assert not anchor or anchor in anchors, (path, anchor)
