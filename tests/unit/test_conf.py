"""The project's settings, as the package reads them."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from django_outbox.conf import (
    OutboxImproperlyConfigured,
    lenient,
    schema_settings,
    settings,
)


def test_settings_follow_a_change(settings: Settings) -> None:
    from django_outbox.conf import settings as outbox

    settings.DJANGO_OUTBOX = {"MARK_BATCH": 7}
    assert outbox.MARK_BATCH == 7
    settings.DJANGO_OUTBOX = {}
    assert outbox.MARK_BATCH == 2000


def test_a_project_without_the_setting_has_the_defaults(
    settings: Settings,
) -> None:
    from django_outbox.conf import settings as outbox

    del settings.DJANGO_OUTBOX
    outbox.reset()
    assert outbox.TABLE == "outbox"


def test_a_snapshot_is_one_object_until_a_change(settings: Settings) -> None:
    from django_outbox.conf import settings as outbox

    first = outbox.snapshot()
    assert outbox.snapshot() is first
    settings.DJANGO_OUTBOX = {}
    assert outbox.snapshot() is not first


@pytest.mark.parametrize("wrong", [{"TABEL": "x"}, {"SHARDS": 0}, "text", None])
def test_wrong_settings_are_one_line_for_django(
    settings: Settings, wrong: object
) -> None:
    from django_outbox.conf import settings as outbox

    settings.DJANGO_OUTBOX = wrong
    with pytest.raises(OutboxImproperlyConfigured) as caught:
        outbox.snapshot()
    assert "\n" not in str(caught.value)


def test_the_schema_stands_while_another_setting_is_wrong(
    settings: Settings,
) -> None:
    """Otherwise the models could not load and no check could say why."""
    settings.DJANGO_OUTBOX = {"TABLE": "messages", "SHARDS": "many"}
    assert schema_settings().TABLE == "messages"
    settings.DJANGO_OUTBOX = {"TABLE": 'x"; drop table y; --'}
    assert schema_settings().TABLE == "outbox"
    settings.DJANGO_OUTBOX = "text"
    assert schema_settings().TABLE == "outbox"


def test_lenient_reads_only_what_was_asked_for(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"DATABASE": "other", "TABLE": "messages"}
    assert (lenient("DATABASE").DATABASE, lenient("DATABASE").TABLE) == (
        "other",
        "outbox",
    )


def test_a_missing_setting_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        settings.NO_SUCH_SETTING  # noqa: B018
