"""Without OpenTelemetry nothing is traced, and nothing is imported for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_outbox.observability.tracing import ProcessSpan, trace_headers

ROOT = Path(__file__).resolve().parents[2]

UNTRACED = """\
import sys
import django
{first}
django.setup()
from django_outbox import ConsumedMessage, consumer, once, stash
from django_outbox.conf import settings
from django_outbox.observability.tracing import ProcessSpan, trace_headers
from django_outbox.stashing.transaction import current_writer
from django_outbox.message.outgoing import Message

row = current_writer().rows.make(Message("t", key="k", value="v"))
with ProcessSpan(ConsumedMessage(topic="t"), consumer="c") as span:
    span.ran(is_first=False)
print(row.header_names, [name for name in sys.modules if "opentelemetry" in name])
"""

ABSENT = "sys.modules['opentelemetry'] = None"
"""Makes each import of it fail, as where it is not installed."""


@pytest.mark.parametrize(("first", "imported"), [("", []), (ABSENT, ["opentelemetry"])])
def test_an_application_without_it_imports_nothing(
    first: str, imported: list[str]
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", UNTRACED.format(first=first)],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == f"[] {imported}"


def test_a_module_that_is_being_imported_has_no_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", type(sys)("empty"))
    assert trace_headers() == []


def test_no_message_has_no_span() -> None:
    with ProcessSpan(None, consumer="billing") as span:
        span.ran(is_first=True)
    assert span._span is None
