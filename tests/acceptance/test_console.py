"""
The admin in a real browser, beside real harvesters.

With DOCS_PICTURES=1 the run also makes the pictures of docs/operations/console.md.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from ..browsers import Browser, require_browser
from ..processes import ROOT, Process, manage
from ..services import Topics
from ..waiting import eventually
from .harvesters import Harvesters
from .tables import OutboxTable

PICTURES = ROOT / "docs" / "operations" / "console"
MAKES_PICTURES = bool(os.environ.get("DOCS_PICTURES"))
TRAFFIC = 40.0
"""Seconds of traffic before and after the trouble, on the docs' pictures."""

LIVE = "/admin/django_outbox/outboxrecord/live/"
LIST = "/admin/django_outbox/outboxrecord/"

USERS = """\
from django.contrib.auth.models import Permission, User
User.objects.create_superuser("ada", password="ada")
grace = User.objects.create_user("grace", password="grace", is_staff=True)
codes = ("view_outboxrecord", "view_live", "skip_outboxrecord")
grace.user_permissions.set(Permission.objects.filter(codename__in=codes))
"""


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    """With an archive, so that the latency is known."""
    require_browser()
    return environment | {"OUTBOX_ARCHIVE": "1", "DJANGO_SECRET_KEY": "of the tests"}


@pytest.fixture
def web(harvesters: Harvesters, environment: dict[str, str]) -> Process:
    """The web server of the example project, with two users."""
    manage("shell", "-c", USERS, environment=environment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = harvesters.run(
        "runserver", "--insecure", "--noreload", f"127.0.0.1:{port}", name="web"
    )
    eventually(lambda: _answers(port), what=lambda: "".join(server.log))
    server.name = f"http://127.0.0.1:{port}"
    return server


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def traffic(table: OutboxTable, topics: Topics) -> Iterator[list[str]]:
    """The topics of a shop, and records to them all the time."""
    names = ["orders", "invoices", "shipments"]
    for name in names:
        # An earlier test may have made it.
        with suppress(KafkaException):
            topics.create(name)
    stop = threading.Event()

    def write() -> None:
        some = random.Random(7)
        while not stop.wait(0.05):
            name = some.choice([*names, "orders"])
            table.insert(
                name, f"customer-{some.randrange(40)}", count=some.randint(1, 12)
            )

    thread = threading.Thread(target=write)
    thread.start()
    yield names
    stop.set()
    thread.join()


def poison(table: OutboxTable, *keys: str) -> None:
    """Write a record for each key that no partition takes."""
    for key in keys:
        table.insert("orders", key, partition=99)
    eventually(lambda: table.count("attempts > 1") >= len(keys))


def assert_moves(page: Browser) -> None:
    """Figures, charts, tables and events are there, and nothing went wrong."""
    page.wait(lambda: page.text("#outbox-leader") == "web-1", what="the leader")
    page.wait(lambda: page.text("#outbox-rate") not in {"…", "0/s"}, what="a rate")
    # Parked last: an earlier reading may have found two of three blocked, too.
    page.wait(lambda: page.text("#outbox-parked") == "1", what="a parked record")
    page.wait(lambda: page.text("#outbox-blocked") == "2", what="blocked records")
    # Written and sent, backlog, age, two latencies.
    lines = "return document.querySelectorAll('.outbox-line').length"
    page.wait(lambda: page.run(lines) == 6, what="six lines")
    assert "was parked after" in page.text("#outbox-events")
    assert "_UNKNOWN_PARTITION" in page.text("#outbox-blocked-rows")
    assert "orders" in page.text("#outbox-topics")
    assert "customer-8" in page.text("#outbox-keys")
    assert page.fits()
    assert page.errors() == []


def test_the_live_page_moves_and_the_pictures_are_of_it(
    harvesters: Harvesters,
    table: OutboxTable,
    traffic: list[str],
    web: Process,
    tmp_path: Path,
) -> None:
    harvesters.start(name="web-1").wait_for("leader_acquired")
    folder = PICTURES if MAKES_PICTURES else tmp_path
    folder.mkdir(exist_ok=True)
    with (
        Browser(web.name, height=1_060) as desk,
        Browser(web.name, width=390, height=844, is_dark=True) as phone,
    ):
        for browser in (desk, phone):
            browser.log_in("ada")
            browser.open(LIVE)
        if MAKES_PICTURES:
            time.sleep(TRAFFIC)  # the subject: charts of so long a time
        poison(table, "customer-7", "customer-8", "customer-9")
        stuck = table.execute("SELECT min(id) FROM {outbox} WHERE attempts > 0")
        manage("outbox", "park", str(stuck[0][0]), environment=harvesters.environment)
        if MAKES_PICTURES:
            time.sleep(TRAFFIC)  # the subject: charts of so long a time
        for browser in (desk, phone):
            assert_moves(browser)
        sources = desk.run(
            "return performance.getEntriesByType('resource').map((r) => r.name)"
        )
        assert all(source.startswith(f"{web.name}/") for source in sources)
        background = "return getComputedStyle(document.body).backgroundColor"
        assert desk.run(background) != phone.run(background)
        desk.photograph(folder / "live.png")
        phone.photograph(folder / "live-phone.png")
        phone.open(f"{LIST}?state=blocked")
        assert phone.fits()
        desk.resize(1_200, 560)
        desk.open(f"{LIST}?state=blocked")
        desk.photograph(folder / "blocked.png")


@pytest.mark.usefixtures("table")
def test_the_page_says_when_its_figures_are_old(web: Process) -> None:
    with Browser(web.name) as browser:
        browser.log_in("grace")
        browser.open(LIVE)
        browser.wait(
            lambda: "unknown: no heartbeat" in browser.text("#outbox-leader"),
            what="no leader",
        )
        assert not browser.find("#outbox-trouble").is_displayed()
        assert not browser.find("#outbox-keys").is_displayed()
        web.kill()
        browser.wait(
            lambda: "cannot be reached" in browser.text("#outbox-trouble"),
            what="the trouble",
        )
        assert "old." in browser.text("#outbox-trouble")


def test_the_page_says_when_the_outbox_is_locked(
    table: OutboxTable, web: Process
) -> None:
    with Browser(web.name) as browser:
        browser.log_in("grace")
        browser.open(LIVE)
        browser.wait(
            lambda: browser.text("#outbox-backlog") == "0", what="the first reading"
        )
        with table.connect() as other, other.transaction():
            other.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
            browser.wait(
                lambda: "does not answer in time" in browser.text("#outbox-trouble"),
                what="the trouble",
            )
        browser.wait(
            lambda: not browser.find("#outbox-trouble").is_displayed(),
            what="the next reading",
        )


def test_what_is_paused_stands_on_the_page(
    web: Process, environment: dict[str, str]
) -> None:
    def outbox(*verb: str) -> None:
        manage("outbox", *verb, environment=environment)

    outbox("pause", "orders", "--reason", "a <b>release</b>")
    outbox("pause", "invoices", "--key", "customer-8")
    with Browser(web.name) as browser:
        browser.log_in("grace")
        browser.open(LIVE)
        # Who may not see payloads sees no key.
        shown = "Paused: orders (a <b>release</b>), one key of invoices"
        browser.wait(
            lambda: browser.text("#outbox-paused") == shown, what="what is paused"
        )
        assert browser.fits()
        outbox("resume", "--all")
        browser.wait(
            lambda: not browser.find("#outbox-paused").is_displayed(), what="no pause"
        )


def test_text_of_rows_is_never_part_of_the_page(
    table: OutboxTable, web: Process
) -> None:
    (number,) = table.insert("orders", "<img src=x onerror='document.title=1'>")
    table.execute(
        "UPDATE {outbox} SET attempts = 3, last_error = "
        "'<img src=x onerror=document.title=1><script>document.title=1</script>'"
    )
    with Browser(web.name) as browser:
        browser.log_in("ada")
        browser.open(LIVE)
        browser.wait(
            lambda: "<img src=x" in browser.text("#outbox-blocked-rows"), what="the row"
        )
        browser.wait(
            lambda: "<img src=x" in browser.text("#outbox-keys"), what="the key"
        )
        assert browser.run("return document.querySelectorAll('#outbox-live img')") == []
        assert browser.driver.title != "1"
        browser.find("#outbox-blocked-rows a").click()
        assert f"/{number}/change/" in browser.driver.current_url


def test_a_record_is_dropped_on_a_phone(
    harvesters: Harvesters, table: OutboxTable, web: Process
) -> None:
    harvesters.start().wait_for("leader_acquired")
    poison(table, "customer-1")
    behind = table.insert("console-other", "customer-2")
    with Browser(web.name, width=390, height=844) as phone:
        phone.log_in("grace")
        phone.open(f"{LIST}?state=blocked")
        phone.find("input.action-select").click()
        phone.run("document.querySelector('[name=action]').value = 'skip'")
        phone.find("button[name=index]").click()
        phone.wait(lambda: "it is lost" in phone.text("#content"), what="the question")
        assert phone.fits()
        phone.find("#content [type=submit]").click()
        phone.wait(
            lambda: "Dropped: 1 of 1 record." in phone.text(".messagelist"), what="it"
        )
    eventually(lambda: table.count("kafka_topic = 'orders'") == 0)
    assert behind
