"""
Standalone mode: one harvester for an application without Django.

Everything comes from the file. Events have no receivers, only observers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ..events import Observer
from ..exceptions import ConfigurationError
from ..harvester.adapters import Adapters
from ..harvester.harvester import Harvester, default_name
from ..harvester.process import run
from ..settings.options import OutboxSettings
from .configuration import ReaperConfig, configure
from .yaml_file import read

logger = logging.getLogger(__name__)


def reap(
    path: Path,
    *,
    log_format: str = "text",
    name: str | None = None,
    solo: bool = False,
    drain: bool = False,
) -> int:
    """
    Harvest what a reaper.yaml describes until a signal; return the exit code.

    Args:
        path: of the file.
        log_format: `json` or `text`.
        name: of the process; instead of the file's.
        solo: lead without an election.
        drain: end when the table is empty.

    Raises:
        ConfigurationError: with one line that names the file and its key.
    """
    try:
        config = configure(read(path))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    name = name or config.name or default_name()
    try:
        return run(
            lambda observers, options: _harvester(
                config, options, observers, name=name, solo=solo
            ),
            config.options,
            log_format=log_format,
            level=config.level,
            drain=drain,
        )
    except ConfigurationError as error:
        message = config.in_words_of_the_file(str(error))
        raise ConfigurationError(f"{path}: {message}") from error


def _harvester(
    config: ReaperConfig,
    options: OutboxSettings,
    observers: Sequence[Observer],
    *,
    name: str,
    solo: bool,
) -> Harvester:
    for notice in config.notices:
        logger.log(
            notice.level,
            "%s %s",
            notice.key,
            notice.message,
            extra={"action": "configure", "key": notice.key},
        )
    return Harvester(
        name=name,
        observers=observers,
        options=options,
        adapters=Adapters.real(
            options,
            {"conninfo": config.data_source},
            name=name,
            table=config.table,
            solo=solo,
        ),
        # No receiver is connected in a standalone process.
        send=lambda _: 0,
    )
