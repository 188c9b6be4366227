"""A Django project that is made of a page's examples, and the commands run in it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..processes import ROOT, Process, Processes
from .harvesters import HEARTBEAT_TIMEOUT, SESSION_TIMEOUT

_ABOVE: Final = """\
import os

SERVER = {server!r}
SECRET_KEY = "the tests' own"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
INSTALLED_APPS = ["django_outbox", "shop", "stock"]
"""
_BELOW: Final = f"""
DJANGO_OUTBOX |= {{
    "SESSION_TIMEOUT": {SESSION_TIMEOUT},
    "HEARTBEAT_TIMEOUT": {HEARTBEAT_TIMEOUT},
}}
"""
MANAGE: Final = """\
import sys

from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
"""
_MODEL: Final = """
class {name}(models.Model):
    {fields}
"""
_CREATE: Final = """
        migrations.CreateModel(
            "{name}", [("id", models.BigAutoField(primary_key=True)), {fields}]
        ),"""
_TEXT: Final = "models.CharField(max_length=20)"
_MODELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "shop": {"Order": ("number",), "Invoice": ("order",)},
    "stock": {"Level": ("item", "quantity")},
}
"""What the page takes for granted: of each app its models and their columns."""


class Command(NamedTuple):
    """A line of a console: `NAME=value python manage.py arguments`."""

    variables: Mapping[str, str]
    arguments: tuple[str, ...]


class Section:
    """
    A section of a page.

    Args:
        heading: Of the section, which ends at the next one of its level.
        instead: Texts of the examples, and what stands there in the test.
    """

    def __init__(
        self, page: Path, heading: str, instead: Mapping[str, str] | None = None
    ) -> None:
        text = page.read_text("utf-8").partition(f"\n{heading}\n")[2]
        level = heading.partition(" ")[0]
        self.text = re.split(rf"^{level} ", text, flags=re.MULTILINE)[0]
        assert self.text, f"{page.name} has no section {heading!r}"
        for old, new in (instead or {}).items():
            assert old in self.text, f"{heading!r} does not have {old!r}"
            self.text = self.text.replace(old, new)

    def blocks(self, language: str) -> list[str]:
        """The code blocks of one language."""
        return re.findall(
            rf"^```{language}\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE
        )

    def files(self) -> dict[str, str]:
        """The files that the blocks of Python name in their first lines."""
        files: dict[str, str] = {}
        for block in self.blocks("python"):
            first, _, code = block.partition("\n")
            assert re.fullmatch(r"# \w+/\w+\.py", first), first
            files[first.removeprefix("# ")] = code
        return files

    def commands(self) -> list[Command]:
        """The commands of all consoles, in their order."""
        lines = "".join(self.blocks("console")).splitlines()
        return [_command(line) for line in lines]


class DocumentedProject(Processes):
    """
    Runs the commands of a project that consists of a section's files.

    Args:
        server: URL of the PostgreSQL server.
    """

    def __init__(
        self,
        folder: Path,
        section: Section,
        environment: Mapping[str, str],
        *,
        server: str,
    ) -> None:
        super().__init__(
            {
                **environment,
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "PYTHONPATH": f"{folder}:{ROOT}",
            }
        )
        self.section = section
        self.folder = folder
        for name, text in {
            "manage.py": MANAGE,
            **{
                name: text
                for app, models in _MODELS.items()
                for name, text in files_of_app(app, models)
            },
            **section.files(),
        }.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        settings = folder / "shop/settings.py"
        above = _ABOVE.format(server=_server(server))
        settings.write_text(f"{above}\n{settings.read_text()}\n{_BELOW}")

    def run(self, command: Command) -> Process:
        """Run a command to its end, which is a success."""
        process = self._launch(command, " ".join(command.arguments))
        assert process.exit_code() == 0, process.report()
        return process

    def start(self, command: Command, name: str) -> Process:
        """Start a harvester or a consumer, with JSON lines."""
        options = ("--name", name, "--log-format", "json")
        return self._launch(
            Command(command.variables, (*command.arguments, *options)), name
        )

    def python(self, code: str, **variables: str) -> list[str]:
        """Run code of the application; return what it prints."""
        script = f"import django\ndjango.setup()\n{code}"
        process = self.launch("python", sys.executable, "-c", script, **variables)
        assert process.exit_code() == 0, process.report()
        return process.output

    def _launch(self, command: Command, name: str) -> Process:
        return self.launch(
            name,
            *(sys.executable, str(self.folder / "manage.py"), *command.arguments),
            **command.variables,
        )


def _command(line: str) -> Command:
    prompt, *words = shlex.split(line, comments=True)
    variables = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    assert (prompt, *words[:2]) == ("$", "python", "manage.py"), line
    return Command(variables, tuple(words[2:]))


def files_of_app(
    app: str, models: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, str]]:
    """Return an app with its models and their migration."""
    classes, creations = "from django.db import models\n", ""
    for name, columns in models.items():
        fields = "\n    ".join(f"{column} = {_TEXT}" for column in columns)
        classes += _MODEL.format(name=name, fields=fields)
        fields = ", ".join(f'("{column}", {_TEXT})' for column in columns)
        creations += _CREATE.format(name=name, fields=fields)
    migration = (
        "from django.db import migrations, models\n\n"
        "class Migration(migrations.Migration):\n"
        f"    initial = True\n    operations = [{creations}\n    ]\n"
    )
    return [
        (f"{app}/__init__.py", ""),
        (f"{app}/models.py", classes),
        (f"{app}/migrations/__init__.py", ""),
        (f"{app}/migrations/0001_initial.py", migration),
    ]


def _server(url: str) -> dict[str, str | int | None]:
    """Return the part of a database's settings that all on one server share."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
        "PASSWORD": parts.password,
    }
