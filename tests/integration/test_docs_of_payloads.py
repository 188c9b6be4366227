"""The how-to on payloads is executed, block by block."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.db import connection
from django.test.utils import isolate_apps
from pytest_django import Settings

from django_outbox.consuming import handlers
from django_outbox.contrib.claim_check import ClaimCheck
from django_outbox.contrib.compression import Compressed
from django_outbox.contrib.shredding import Shredded
from django_outbox.pipeline.payloads import wrapping
from django_outbox.testing import OutboxFixture

PAGE = (Path(__file__).parents[2] / "docs/howto/payloads.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MODELS, MESSAGING, SETTINGS, *EXAMPLES, _SESSION, _LAKE = BLOCKS


def run(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "payloads.md", "exec"), names)  # noqa: S102


@pytest.fixture
def shop(
    transactional_db: None,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    tmp_path: Path,
) -> Iterator[None]:
    """The project of the page; its table ends with the test."""
    key = base64.b64encode(b"k" * 32).decode()
    monkeypatch.setenv("OUTBOX_KEYS", f"2026-05:{key}")
    monkeypatch.setattr(handlers, "_subscriptions", [])
    models, messaging = ModuleType("shop.models"), ModuleType("shop.messaging")
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", models)
    monkeypatch.setitem(sys.modules, "shop.messaging", messaging)
    with isolate_apps("django_outbox"):
        names: dict[str, Any] = {"__name__": "django_outbox.examples"}
        run(MODELS, names)
        models.CustomerKey = names["CustomerKey"]  # type: ignore[attr-defined]
        run(MESSAGING, vars(messaging))
        project: dict[str, Any] = {}
        assert "/srv/outbox" in SETTINGS
        run(SETTINGS.replace("/srv/outbox", str(tmp_path)), project)
        settings.OUTBOX_KEYS = project["OUTBOX_KEYS"]
        settings.STORAGES = project["STORAGES"]
        wanted = project["DJANGO_OUTBOX"]["MIDDLEWARE"]
        settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "MIDDLEWARE": wanted}
        with connection.schema_editor() as editor:
            editor.create_model(names["CustomerKey"])
        yield
        with connection.schema_editor() as editor:
            editor.delete_model(names["CustomerKey"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("shop")
def test_the_page_does_what_it_says(outbox: OutboxFixture) -> None:
    names: dict[str, Any] = {"outbox": outbox}
    for block in EXAMPLES:
        run(block, names)
    assert set(names) >= {"cards", "profiles", "reports", "removed"}


def test_the_page_names_every_header() -> None:
    section = PAGE.partition("\n## For readers in other languages\n")[2]
    named = set(re.findall(r"`([\w-]+)`", section))
    headers = (
        *(wrapping.CONTENT_ENCODING, wrapping.ENCRYPTION, wrapping.KEY_ID),
        *(wrapping.SUBJECT_KEY_ID, wrapping.CLAIM_CHECK),
        *(wrapping.CLAIM_CHECK_SHA256, wrapping.CLAIM_CHECK_SIZE),
    )
    assert {*headers, wrapping.SCHEME, wrapping.GZIP} <= named
    assert f"`{wrapping.ERASED}`" in PAGE


def test_the_page_has_the_limits_of_the_classes() -> None:
    assert f"at least {Compressed.at_least:,} bytes" in PAGE
    assert f"above {ClaimCheck.limit:,} bytes" in PAGE
    assert (Compressed.most, ClaimCheck.most) == (100_000_000, 100_000_000)
    assert PAGE.count("100 MB") == 2
    assert (Shredded.cache_seconds, Shredded.cache_size) == (60.0, 1_000)
    assert "may read on for a minute" in PAGE
    assert "of at most 1,000" in PAGE
