"""The page on payloads reads an encrypted lake with the keys of the environment."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from django_outbox.pipeline import session

PAGE = (Path(__file__).parents[2] / "docs/howto/payloads.md").read_text("utf-8")


def test_the_session_of_the_page_has_the_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (config,) = re.findall(r"```toml\n(# pipeline\.toml\n.*?)```", PAGE, re.DOTALL)
    (block,) = re.findall(r"```python\n([^`]*open_session\(settings\)[^`]*)```", PAGE)
    (tmp_path / "pipeline.toml").write_text(config)
    monkeypatch.chdir(tmp_path)
    keys = f"2026-05:{base64.b64encode(b'k' * 32).decode()}"
    monkeypatch.setenv("OUTBOX_PIPELINE_PAYLOAD_KEYS", keys)
    monkeypatch.setenv("OUTBOX_PIPELINE_LAKE", str(tmp_path / "lake"))
    monkeypatch.setattr(session, "open_session", lambda settings: settings)
    names: dict[str, Any] = {}
    exec(compile(block, "payloads.md", "exec"), names)  # noqa: S102
    assert names["spark"].payload_keys == keys
    assert names["spark"].unwrap
