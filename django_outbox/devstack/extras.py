"""The requirements of the extras in `pyproject.toml`, including nested extras."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")


class Extras:
    """
    The extras of one project, read with the standard library only.

    Args:
        pyproject: Path of the project's `pyproject.toml`.
    """

    def __init__(self, pyproject: Path) -> None:
        # Python before 3.11 has no tomllib but must be able to import this module.
        import tomllib

        project = tomllib.loads(pyproject.read_text("utf-8")).get("project", {})
        self._name = _normalized(project.get("name", ""))
        self._listed: dict[str, list[str]] = project.get("optional-dependencies", {})

    def closure(self, names: set[str]) -> set[str]:
        """Return these extras and all extras that they include."""
        found: set[str] = set()
        left = set(names)
        while left:
            found.add(name := left.pop())
            for requirement in self._listed.get(name, []):
                left |= self._own(requirement) - found - {""}
        return found

    def requirements(self, names: set[str]) -> list[str]:
        """Return the requirements of these extras on other projects."""
        return sorted(
            {
                requirement
                for name in self.closure(names)
                for requirement in self._listed.get(name, [])
                if not self._own(requirement)
            }
        )

    def _own(self, requirement: str) -> set[str]:
        """Return the extras of this project that a requirement includes."""
        match = _NAME.match(requirement)
        if not match or _normalized(match[1]) != self._name:
            return set()
        return {extra.strip() for extra in (match[2] or "").split(",")}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
