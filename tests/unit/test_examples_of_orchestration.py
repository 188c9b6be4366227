"""The pipeline's parser accepts the commands in the examples for schedulers."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from django_outbox.pipeline.__main__ import parser
from django_outbox.pipeline.pipeline_settings import (
    ENVIRONMENT,
    build,
    read_environment,
)

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "pipeline"
PAGE = (ROOT / "docs" / "howto" / "pipeline.md").read_text("utf-8")
PROGRAM = ["python", "-m", "django_outbox.pipeline"]

DOCUMENTS = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text("utf-8")))
CRON_LINE = re.compile(r"((?:\S+ ){5})(.*)")
CRON_VARIABLE = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each workload's kind, and the specification of its pod."""
    for document in DOCUMENTS:
        spec = document.get("spec")
        if document["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if spec:
            yield document["kind"], spec["template"]["spec"]


def parsed(command: list[str]) -> Namespace:
    assert command[:3] == PROGRAM
    return parser().parse_args(command[3:])


def test_the_pods_run_commands_of_the_pipeline() -> None:
    found = {}
    for kind, pod in pods():
        (container,) = pod["containers"]
        chosen = parsed([*container["command"], *container["args"]])
        found[chosen.command] = (kind, chosen)
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        for variable in container.get("env", ()):
            assert variable["name"] in ENVIRONMENT
    kinds = {command: kind for command, (kind, _) in found.items()}
    assert kinds == {"run": "Deployment", "audit": "CronJob", "maintain": "CronJob"}
    assert found["run"][1].every == 10
    (deployment,) = [d for d in DOCUMENTS if d["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_the_pods_have_the_pipelines_settings() -> None:
    (settings,) = [d for d in DOCUMENTS if d["kind"] == "ConfigMap"]
    known = {*ENVIRONMENT, "KAFKA_BOOTSTRAP_SERVERS"}
    assert set(settings["data"]) <= known
    built = build(read_environment(settings["data"]))
    assert built.topics == ("orders", "payments")
    assert built.kafka == {"bootstrap.servers": "kafka:9092"}
    for _, pod in pods():
        (container,) = pod["containers"]
        (source,) = container["envFrom"]
        assert source["configMapRef"]["name"] == settings["metadata"]["name"]
        (mount,) = container["volumeMounts"]
        assert mount["mountPath"] == built.lake


def test_cron_runs_commands_of_the_pipeline() -> None:
    text = (EXAMPLES / "crontab").read_text("utf-8")
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#") and (match := CRON_LINE.fullmatch(line)):
            words = shlex.split(match[2].partition(">")[0])
            found.append(parsed(words[words.index("python") :]).command)
    assert found == ["run", "audit", "maintain", "maintain"]
    # A run that is skipped is no failure, after which cron would mail the log.
    assert "flock -n -E 0 " in text


def test_the_audits_know_the_database() -> None:
    """Without it they cannot tell what is lost, and have no fault to mail."""
    text = (EXAMPLES / "crontab").read_text("utf-8")
    variables = dict(CRON_VARIABLE.findall(text))
    assert read_environment(variables)["database_url"].startswith("postgres://")
    (audit,) = [
        pod["containers"][0]
        for _, pod in pods()
        if "audit" in pod["containers"][0]["args"]
    ]
    assert "DATABASE_URL" in {variable["name"] for variable in audit["env"]}


def test_every_command_line_of_the_howto_is_one() -> None:
    lines = re.findall(
        r"^\$ .*(?:-m django_outbox\.pipeline|outbox_pipeline) ([^\")\n]*)$",
        PAGE,
        re.MULTILINE,
    )
    commands = {
        parser().parse_args(shlex.split(line, comments=True)).command for line in lines
    }
    assert {"doctor", "run", "audit", "counts", "maintain"} <= commands


def test_the_leaders_task_is_the_examples() -> None:
    (quote,) = re.findall(r"```python\n# lake/tasks.py\n(.*?)```", PAGE, re.DOTALL)
    source = (ROOT / "example_project/lake/tasks.py").read_text("utf-8")
    assert quote in source
