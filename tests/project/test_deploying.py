"""The manifests of docs/operations fit the commands, the settings and the endpoints."""

from __future__ import annotations

from configparser import ConfigParser
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from django_outbox.consuming.consumer_process import CLOSE_GRACE as CONSUMER_GRACE
from django_outbox.harvester.process import CLOSE_GRACE as HARVESTER_GRACE
from django_outbox.observability import endpoints
from django_outbox.settings.options import OutboxSettings

FOLDER = Path(__file__).resolve().parents[2] / "docs/operations"
MANIFESTS = sorted((FOLDER / "kubernetes").glob("*.yaml"))
NEEDED = OutboxSettings().DRAIN_TIMEOUT + max(HARVESTER_GRACE, CONSUMER_GRACE)
"""Seconds for an orderly end."""


def documents(path: Path) -> dict[str, dict[str, Any]]:
    """Return the documents of a file by kind."""
    found = list(yaml.safe_load_all(path.read_text("utf-8")))
    return {document["kind"]: document for document in found}


def pod(path: Path) -> dict[str, Any]:
    spec: dict[str, Any] = documents(path)["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_selectors_find_the_pods(path: Path) -> None:
    found = documents(path)
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for document in found.values():
        assert document["spec"]["selector"]["matchLabels"] == labels
    assert found["Deployment"]["apiVersion"] == "apps/v1"
    assert found["PodDisruptionBudget"]["apiVersion"] == "policy/v1"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_pods_have_no_right_that_they_do_not_need(path: Path) -> None:
    spec = pod(path)
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all("secretRef" in source for source in container["envFrom"])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_pods_have_the_time_to_end_in_order(path: Path) -> None:
    assert pod(path)["terminationGracePeriodSeconds"] >= NEEDED + 5


def test_a_new_harvester_stands_by_before_an_old_one_ends() -> None:
    spec = documents(FOLDER / "kubernetes/harvester.yaml")["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize("name", ["harvester", "consumer"])
def test_probes_ask_what_is_served(name: str) -> None:
    (container,) = pod(FOLDER / f"kubernetes/{name}.yaml")["containers"]
    variables = {item["name"]: item.get("value") for item in container["env"]}
    setting = {
        "harvester": "METRICS_ADDRESS",
        "consumer": "CONSUMER_METRICS_ADDRESS",
    }[name]
    assert setting in {field.name for field in fields(OutboxSettings)}
    (port,) = container["ports"]
    assert variables[f"OUTBOX_{setting}"] == f"0.0.0.0:{port['containerPort']}"
    page = (FOLDER / "deploying.md").read_text("utf-8")
    assert f'"{setting}": os.environ.get("OUTBOX_{setting}", "")' in page
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == port["name"]
        assert f"`{asked['path']}`" in (endpoints.__doc__ or "")
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["command"][:3] == ["python", "manage.py", f"run{name}"]


def test_the_unit_gives_the_time_to_end_in_order() -> None:
    unit = ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "harvester.service", "utf-8")
    service = unit["Service"]
    assert float(service["TimeoutStopSec"]) >= NEEDED + 5
    assert service["KillSignal"] == "SIGTERM"
    assert service["RestartPreventExitStatus"] == "2"
    assert "manage.py runharvester" in service["ExecStart"]
