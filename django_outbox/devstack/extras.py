"""What the extras of `pyproject.toml` need, one extra leading to others."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")


class Extras:
    """
    The extras of one project, read with the standard library only.

    Args:
        pyproject: path of its file.
    """

    def __init__(self, pyproject: Path) -> None:
        # Older Pythons, which have none, import this module to say so.
        import tomllib

        project = tomllib.loads(pyproject.read_text("utf-8")).get("project", {})
        self._name = _normalized(project.get("name", ""))
        self._listed: dict[str, list[str]] = project.get("optional-dependencies", {})

    def closure(self, names: set[str]) -> set[str]:
        """Return these extras and all to which they lead."""
        found: set[str] = set()
        left = set(names)
        while left:
            found.add(name := left.pop())
            for requirement in self._listed.get(name, []):
                left |= self._own(requirement) - found - {""}
        return found

    def requirements(self, names: set[str]) -> list[str]:
        """Return the other projects that these extras need."""
        return sorted(
            {
                requirement
                for name in self.closure(names)
                for requirement in self._listed.get(name, [])
                if not self._own(requirement)
            }
        )

    def _own(self, requirement: str) -> set[str]:
        """The extras of the same project that a requirement names."""
        match = _NAME.match(requirement)
        if not match or _normalized(match[1]) != self._name:
            return set()
        return {extra.strip() for extra in (match[2] or "").split(",")}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
