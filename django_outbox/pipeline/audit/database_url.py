"""
URLs of databases, as PostgreSQL's driver for Java has them.

Nothing here shows a password.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from ...exceptions import ConfigurationError

_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(\d*))?")
"""A host of a URL, and its port."""


def options(url: str) -> dict[str, str]:
    """
    Turn a database URL into options of Spark's source; its URL has no secret.

    Raises:
        ConfigurationError: the URL cannot be read, or has no host, but a socket or a
            service.
    """
    parts = _split(url)
    if unquote(parts.hostname or "/").startswith(("/", "@")):
        raise ConfigurationError(
            "database_url: PostgreSQL's driver for Java needs a host, and knows neither"
            " socket directories nor services. Set DATABASE_URL, or the URL in"
            " `clusters`."
        )
    query = f"?{parts.query}" if parts.query else ""
    return {
        "url": f"jdbc:postgresql://{_server(parts)}{parts.path}{query}",
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "driver": "org.postgresql.Driver",
        # By default the driver fetches all rows at once.
        "fetchsize": "10000",
    }


def named(url: str) -> str:
    """Return hosts, ports and name of a database: what a report may show."""
    parts = _split(url)
    return f"{_server(parts)}{parts.path}"


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _server(parts)
    except ValueError:
        # Without the cause, which would show a part of the password.
        raise ConfigurationError(
            "database_url: it cannot be read. In user and password, characters such"
            " as / ? # [ must be percent-encoded: %2F %3F %23 %5B."
        ) from None
    return parts


def _server(parts: SplitResult) -> str:
    """Return the hosts of a URL, each with its port; one port behind all is for all."""
    hosts = parts.netloc.rpartition("@")[2].split(",")
    found = [_HOST.fullmatch(host) for host in hosts]
    pairs = [(one[1], one[2]) for one in found if one]
    if len(pairs) < len(hosts):
        raise ValueError
    *others, (_, last) = pairs
    common = "" if any(port for _, port in others) else last
    return ",".join(f"{host}:{port or common or 5432}" for host, port in pairs)
