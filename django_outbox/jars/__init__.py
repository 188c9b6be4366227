"""
Pinned Java archives, and the Java that runs them.

Each `*.txt` is a complete list of `group:artifact:version sha256`, so nothing
is resolved transitively. `coordinates.py` parses the lists, `resolver.py`
downloads the archives into the user's cache folder and verifies each one, and
`find_java.py` finds a Java that is new enough. `python -m django_outbox.jars
LIST` downloads a list.
"""

from __future__ import annotations

from .coordinates import Coordinate, read_list
from .resolver import JarError, are_cached, resolve

__all__ = ["Coordinate", "JarError", "are_cached", "read_list", "resolve"]
