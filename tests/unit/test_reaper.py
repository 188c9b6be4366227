"""The command line of standalone mode, up to where it would connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from django_outbox.__main__ import main
from django_outbox.standalone.configuration import configure
from django_outbox.standalone.yaml_file import read

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "howto"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reaper.yaml"


def refused(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 2
) -> str:
    """Run the command, which must end at once, and return its standard error."""
    assert main([str(argument) for argument in arguments]) == code
    output, error = capsys.readouterr()
    assert output == ""
    assert error.count("\n") == 1
    return error


def test_a_wrong_key_ends_it_with_2_and_one_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the file and the key."""
    file.write_text("harvest: {limits: {markBakoff: 1s}}")
    assert refused(capsys, "reap", "-f", file) == (
        f"python -m django_outbox reap: {file}: harvest.limits.markBakoff: unknown "
        "key. Did you mean 'markBackoff'?\n"
    )


def test_a_missing_file_ends_it_with_2_and_one_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system says what is wrong with it."""
    error = refused(capsys, "reap", "--file", file)
    assert error == (
        f"python -m django_outbox reap: {file}: cannot be read: No such file or "
        "directory.\n"
    )


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("baseKafkaConfig: {bootstrap.server: h}", "baseKafkaConfig"),
        ("producerKafkaConfig: {bootstrap.server: h}", "producerKafkaConfig"),
        (
            "harvest: {baseKafkaConfig: {debug: all},"
            " producerKafkaConfig: {bootstrap.server: h}}",
            "harvest.producerKafkaConfig",
        ),
    ],
)
def test_a_property_that_kafka_does_not_know_is_told_in_the_files_words(
    text: str, keys: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """librdkafka names the property, the line its place in the file."""
    file.write_text(f"{text}\nlogging: {{level: Off}}")
    assert refused(capsys, "reap", "-f", file) == (
        f"python -m django_outbox reap: {file}: {keys}: 'bootstrap.server': no such "
        'librdkafka property; did you mean "bootstrap.servers"?\n'
    )


def test_without_pyyaml_it_says_what_to_install(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyYAML comes with the extra of this name only."""
    ours = [name for name in sys.modules if name.startswith("django_outbox.standalone")]
    for name in ours:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert refused(capsys, "reap", "-f", file) == (
        "python -m django_outbox reap: the package PyYAML is missing: "
        "pip install 'django-outbox-kafka[reaper]'.\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [[], ["sow"], ["reap"], ["reap", "-f", "x", "--log-format", "xml"]],
)
def test_a_wrong_command_line_ends_it_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse shows the usage."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: python -m django_outbox")


def test_the_help_explains_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    """It is what an operator reads first."""
    with pytest.raises(SystemExit) as caught:
        main(["reap", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for argument in ("--file", "--name", "--solo", "--drain", "--log-format"):
        assert re.search(rf"{argument}\b[^\n]*\n?\s+\w", text)


def test_it_needs_no_django_settings() -> None:
    """Django is imported, for its settings nobody asks."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DJANGO")}
    code = (
        "import django_outbox.standalone.reaper\n"
        "from django.apps import apps\n"
        "from django.conf import settings\n"
        "assert not settings.configured and not apps.ready\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=60
    )


@pytest.mark.parametrize("page", ["standalone.md", "from-goharvest.md"])
def test_the_files_in_the_documentation_are_right(page: str, file: Path) -> None:
    """Each YAML block of the page is a whole file."""
    blocks = re.findall(
        r"```yaml\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL
    )
    assert blocks
    for block in blocks:
        file.write_text(block, "utf-8")
        configure(read(file))
