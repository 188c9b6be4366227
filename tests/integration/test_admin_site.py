"""The pages in an admin site of the project's own, beside Django's."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.urls import path, reverse

from django_outbox.models import OutboxRecord, ParkedRecord

from .test_admin import MESSAGE, staff

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

OPERATORS = admin.AdminSite(name="operators")
OPERATORS.site_header = "For operators"
for _model, _page in admin.site._registry.items():
    if _model._meta.app_label == "django_outbox":
        OPERATORS.register(_model, type(_page))

PARTIAL = admin.AdminSite(name="partial")
PARTIAL.register(ParkedRecord)

urlpatterns = [
    path("partial/", PARTIAL.urls),
    path("operators/", OPERATORS.urls),
    path("admin/", admin.site.urls),
]


def url(name: str) -> str:
    return reverse(f"admin:{name}", current_app="operators")


@pytest.mark.parametrize("name", ["django_outbox_live", "django_outbox_replay"])
def test_a_page_has_the_header_and_the_links_of_its_site(name: str) -> None:
    client = staff("view_live", "replay_archivedrecord")

    text = client.get(url(name)).content.decode()

    assert "For operators" in text
    assert 'href="/admin/' not in text
    assert 'data-url="/admin/' not in text
    assert 'href="/operators/' in text


def test_a_site_without_the_waiting_records_has_no_link_to_the_live_page() -> None:
    page = reverse("admin:app_list", args=["django_outbox"], current_app="partial")

    answer = staff("view_live", "view_parkedrecord").get(page)

    assert answer.status_code == 200
    assert "Parked records" in answer.content.decode()


def test_the_question_before_records_are_dropped_belongs_to_the_site() -> None:
    record = OutboxRecord.objects.create(**MESSAGE)
    chosen = {"action": "skip", ACTION_CHECKBOX_NAME: [str(record.pk)]}
    client = staff("view_outboxrecord", "skip_outboxrecord")

    page = client.post(url("django_outbox_outboxrecord_changelist"), chosen)

    text = page.content.decode()
    assert "Drop records for good?" in text
    assert "For operators" in text
    assert 'href="/admin/' not in text


def test_after_records_were_sent_again_comes_the_page_of_the_site() -> None:
    period = {"since": "2026-11-24T10:00", "until": "2026-11-24T11:00"}

    answer = staff("replay_archivedrecord").post(url("django_outbox_replay"), period)

    assert answer["Location"].startswith("/operators/")
