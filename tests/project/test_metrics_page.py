"""Metrics, dashboard and alerts agree: every name is one that a process exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from django_outbox.harvester.monitoring import SHOWN_TOPICS, STATISTICS_INTERVAL
from django_outbox.observability.consumer_metrics import CONSUMER_FIGURES
from django_outbox.observability.figures import Figure
from django_outbox.observability.metrics import HARVESTER_FIGURES
from django_outbox.pipeline.textfile import PIPELINE_FIGURES, PipelineFigure
from django_outbox.postgres.outbox_table import BACKLOG_CAP

from .checkout import ROOT
from .promql import parse

FOLDER = ROOT / "docs/operations"
PAGE = (FOLDER / "metrics.md").read_text("utf-8")
ALERTS = FOLDER / "alerts.yaml"
CASES = Path(__file__).with_name("alert_cases.yaml")
FIGURES: list[Figure[Any] | PipelineFigure] = [
    *HARVESTER_FIGURES,
    *CONSUMER_FIGURES,
    *PIPELINE_FIGURES,
]
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}

EXPORTED = {
    f"{figure.exported_name}{suffix}"
    for figure in FIGURES
    for suffix in SUFFIXES.get(figure.kind, ("",))
}
LABELS = {"job", "instance", "le", "group", *(f.label for f in FIGURES if f.label)}
"""Those of the figures, and those that Prometheus adds."""


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        yield from group["rules"]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def of_the_dashboard() -> list[str]:
    """Return its expressions, with values in the place of Grafana's variables."""
    return [
        target["expr"].replace("$__rate_interval", "5m").replace("$job", ".*")
        for panel in panels()
        for target in panel["targets"]
    ]


RULES = list(rules())
EXPRESSIONS = [*(rule["expr"] for rule in RULES), *of_the_dashboard()]


def test_the_page_has_every_metric_as_the_code_has_it() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?)\| .+ \|$", PAGE, re.MULTILINE)
    shown = {
        name: (kind, labels.replace("`", "").strip()) for name, kind, labels in rows
    }
    assert len(shown) == len(rows)
    assert shown == {
        **{f.exported_name: (f.kind, f.label) for f in HARVESTER_FIGURES},
        **{f.exported_name: (f.kind, "group") for f in CONSUMER_FIGURES},
        **{f.exported_name: (f.kind, f.label) for f in PIPELINE_FIGURES},
    }


def test_the_page_has_the_bounds_of_the_code() -> None:
    assert f"counted up to {BACKLOG_CAP:,}" in PAGE
    assert f"the {SHOWN_TOPICS} largest topics" in PAGE
    assert f"every {STATISTICS_INTERVAL:g} s at most" in PAGE
    figure = next(f for f in HARVESTER_FIGURES if f.name == "backlog_records")
    assert f"{BACKLOG_CAP:,}" in figure.text


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_what_is_exported(expression: str) -> None:
    named = parse(expression)
    assert named.metrics
    assert named.metrics - EXPORTED == set()
    assert named.labels - LABELS == set()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_dashboard_shows_every_figure(
    figure: Figure[Any] | PipelineFigure,
) -> None:
    shown = {name for text in of_the_dashboard() for name in parse(text).metrics}
    suffixes = SUFFIXES.get(figure.kind, ("",))
    assert shown & {f"{figure.exported_name}{suffix}" for suffix in suffixes}


def test_an_alert_says_how_urgent_it_is_and_what_is_wrong() -> None:
    assert len(RULES) > 15
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    board = dashboard()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    cells = [
        (x, y)
        for panel in board["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_dashboard_takes_any_data_source_and_job() -> None:
    board = dashboard()
    names = [variable["name"] for variable in board["templating"]["list"]]
    assert names == ["datasource", "job"]
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["expr"].count('job=~"$job"') == target["expr"].count("{")


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        ("up", {"up"}, set()),
        ('rate(a_total{job=~"x|y",kind!="z"}[5m])', {"a_total"}, {"job", "kind"}),
        ("sum by (job, le) (rate(a_bucket[5m])) > 1e3", {"a_bucket"}, {"job", "le"}),
        ("sum(a) without (b) / on (c) group_left d", {"a", "d"}, {"b", "c"}),
        ("a and (b unless c == 0)", {"a", "b", "c"}, set()),
    ],
)
def test_names_of_an_expression(
    expression: str, metrics: set[str], labels: set[str]
) -> None:
    assert parse(expression) == (metrics, labels)


@pytest.mark.parametrize(
    "expression",
    [
        *("", "sum(a", "a}", "sum a", "ratio(a)", "a ; b", "a[5m]", "(a]"),
        *("sum(a_total)", "rate(a_total)[5m]", "rate(a_total[x])", "sum(rate(a)"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(expression)


def promtool(*arguments: str) -> str:
    command = shutil.which("promtool")
    if command is None:
        pytest.skip("promtool is not on the PATH (Debian's package prometheus has it)")
    done = subprocess.run(
        [command, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", str(ALERTS))


def test_prometheus_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    recorded = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(of_the_dashboard())
    ]
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": recorded}]}))
    assert f"{len(recorded)} rules found" in promtool("check", "rules", str(path))


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", str(CASES))


def test_every_alert_is_seen_to_fire() -> None:
    cases = yaml.safe_load(CASES.read_text("utf-8"))
    (path,) = cases["rule_files"]
    assert (CASES.parent / path).resolve() == ALERTS
    fired = {
        re.findall(r'alertname="(\w+)"', sample["labels"])[0]
        for case in cases["tests"]
        for test in case["promql_expr_test"]
        for sample in test["exp_samples"]
    }
    assert fired == {rule["alert"] for rule in RULES}
    *_, quiet = cases["tests"]
    assert quiet["promql_expr_test"][0]["exp_samples"] == []


def test_the_quiet_day_has_a_series_for_every_alert() -> None:
    *_, quiet = yaml.safe_load(CASES.read_text("utf-8"))["tests"]
    series = {item["series"].partition("{")[0] for item in quiet["input_series"]}
    for rule in RULES:
        assert parse(rule["expr"]).metrics <= series, rule["alert"]


def test_cases_have_series_that_are_exported() -> None:
    for case in yaml.safe_load(CASES.read_text("utf-8"))["tests"]:
        for item in case["input_series"]:
            assert item["series"].partition("{")[0] in EXPORTED
            assert set(re.findall(r"(\w+)=", item["series"])) <= LABELS
