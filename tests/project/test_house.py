"""Where code lies and how it is written; each test names the places that break it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_outbox import conf, exceptions

from .checkout import ROOT, files, package_modules

ROOT_MODULES = 12
PORT_METHODS = 6
PARAMETERS = 7

SHARED_NAMES = {"__init__.py", "__main__.py", "ports.py", "settings.py"}
"""File names that several folders may have."""

BANNED = (
    *("anew", "whoever", "for ever", "mend", "mended", "seldom", "at hand"),
    *("is told", "are told", "doorstep", "trying on", "well again"),
    *("is taken for", "are taken for", "is no Kafka topic"),
)
"""Words and phrases that engineers of this field do not write."""

BANNED_PATTERN = re.compile(
    r"\b(" + "|".join(word.replace(" ", r"\s+") for word in BANNED) + r")\b",
    re.IGNORECASE,
)
FILE_NAME = re.compile(r"\b\w+\.py\b")
SCRIPTS = {"manage.py", "demo.py", "run.py"}
"""Scripts that people call by name; a docstring may say how."""


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for path in package_modules():
        yield path, ast.parse(path.read_text("utf-8"))


def test_the_package_root_holds_only_the_doors() -> None:
    found = sorted(path.name for path in (ROOT / "django_outbox").glob("*.py"))
    assert len(found) <= ROOT_MODULES, found


def test_a_file_name_says_what_is_in_it_without_its_folder() -> None:
    names = Counter(
        path.name for path in package_modules() if path.name not in SHARED_NAMES
    )
    twice = {name: count for name, count in names.items() if count > 1}
    assert twice == {}


def is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).startswith("Protocol") for base in node.bases)


def test_a_port_is_small() -> None:
    large = {
        f"{shown(path)}:{node.name}": methods
        for path, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and is_protocol(node)
        if (
            methods := sum(
                isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                for item in node.body
            )
        )
        > PORT_METHODS
    }
    assert large == {}


def test_a_function_takes_few_parameters() -> None:
    found = {
        f"{shown(path)}:{node.lineno} {node.name}": count
        for path, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (
            count := sum(
                argument.arg not in {"self", "cls"}
                for argument in (
                    *node.args.posonlyargs,
                    *node.args.args,
                    *node.args.kwonlyargs,
                )
            )
        )
        > PARAMETERS
    }
    assert found == {}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(
            node,
            ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
        ) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


@pytest.mark.parametrize(
    "package",
    [
        *("admin", "clusters", "consuming", "contrib", "election", "harvester"),
        *("idempotence", "kafka", "management", "models", "observability"),
        *("operations", "postgres", "relay", "relay/ledger", "standalone"),
        *("stashing", "testing", "devstack", "pipeline/audit", "pipeline/lake"),
        *("pipeline/payloads", "pipeline/resend"),
    ],
)
def test_the_page_of_a_package_names_its_modules(package: str) -> None:
    folder = ROOT / "django_outbox" / package
    page = (folder / "__init__.py").read_text("utf-8")
    names = {path.name for path in folder.glob("[!_]*.py")}
    assert [name for name in sorted(names) if name not in page] == []


def test_no_docstring_names_another_file() -> None:
    """The page of a package may: it tells the flow through its modules."""
    found = [
        f"{shown(path)}:{line}: {', '.join(names)}"
        for path, tree in parsed()
        if path.name != "__init__.py"
        for line, text in docstrings(tree)
        if (names := sorted({*FILE_NAME.findall(text)} - {path.name} - SCRIPTS))
    ]
    assert found == []


@pytest.mark.parametrize("folder", ["django_outbox", "docs", "README.md"])
def test_prose_is_plain_english(folder: str) -> None:
    found = [
        f"{shown(path)}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(0)}"
        for path in files()
        if path.is_relative_to(ROOT / folder)
        and path.suffix in {".py", ".md", ".sql", ".html"}
        for text in [path.read_text("utf-8")]
        for match in BANNED_PATTERN.finditer(text)
    ]
    assert found == []


def drawn(tree: str) -> dict[str, str]:
    """Read parents from a tree that is drawn with box characters."""
    parents, path = {"OutboxError": ""}, ["OutboxError"]
    for line in tree.splitlines():
        match = re.match(r"(?P<lead>[│├└─ ]*[├└]── )(?P<name>[A-Z]\w+)", line)
        if match is None:
            continue
        depth = len(match["lead"]) // 4
        path[depth:] = [match["name"]]
        parents[match["name"]] = path[depth - 1]
    return parents


def test_the_tree_of_exceptions_is_complete() -> None:
    classes = {
        name: value.__bases__[0].__name__
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, exceptions.OutboxError)
    }
    classes["OutboxError"] = ""
    assert drawn(exceptions.__doc__ or "") == classes
    assert issubclass(conf.OutboxImproperlyConfigured, exceptions.ConfigurationError)
