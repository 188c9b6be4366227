"""
Pinned Java archives: which ones, and how they get onto this machine.

Each `*.txt` here is one list: `group:artifact:version sha256`, complete, so
that nothing is resolved transitively. `coordinates.py` reads the lists,
`resolver.py` downloads and checks. The devstack runs a broker from them, the
pipeline gives them to Spark.
"""

from __future__ import annotations

from .coordinates import Coordinate, read_list
from .resolver import JarError, are_cached, resolve

__all__ = ["Coordinate", "JarError", "are_cached", "read_list", "resolve"]
