"""Settings of Sphinx, which makes the documentation's site of these pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import django
from django.conf import settings

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

# The reference is made from docstrings, and models cannot load without Django.
settings.configure(
    INSTALLED_APPS=["django_outbox"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
)
django.setup()

from django_outbox import __version__  # noqa: E402

project = "django-outbox"
author = "the django-outbox authors"
project_copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib.mermaid",
]
# Fragments of the changelog are no pages.
exclude_patterns = ["changelog.d/*.*.md"]
# Pygments knows no strings in dollars.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"{project} {version}"

# The pages are read on GitHub, too: they link to headings as GitHub names them, and
# have pictures in blocks of the language "mermaid".
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

# Docstrings: Google's sections, `code` in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False

_INDENT: Final = re.compile(r" *")


def show_examples(
    app: Sphinx,  # noqa: ARG001
    what: str,  # noqa: ARG001
    name: str,  # noqa: ARG001
    obj: object,  # noqa: ARG001
    options: object,  # noqa: ARG001
    lines: list[str],
) -> None:
    """Make code blocks of indented examples in a docstring."""
    shown: list[str] = []
    for line in lines:
        before = next((text for text in reversed(shown) if text), "")
        is_deeper = _width(line) > _width(before) and bool(line)
        is_paragraph = bool(shown) and not shown[-1]
        is_of_text = not before.lstrip().startswith((":", "..", "-"))
        if is_deeper and is_paragraph and is_of_text and before:
            shown += [f"{' ' * _width(before)}.. code-block:: python", ""]
        shown.append(line)
    lines[:] = shown


def _width(line: str) -> int:
    found = _INDENT.match(line)
    return found.end() if found else 0


def setup(app: Sphinx) -> None:
    """Connect what is special here."""
    # After napoleon, which has made fields of the sections.
    app.connect("autodoc-process-docstring", show_examples, priority=900)
