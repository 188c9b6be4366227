"""Says what to install when a package of an extra is missing."""

from __future__ import annotations

import importlib

from ...exceptions import ConfigurationError, install_command


def require_packages(*packages: str, extra: str) -> None:
    """
    Import packages that the driver and Spark's workers need.

    Raises:
        ConfigurationError: names the first one that is missing, and its extra.
    """
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{package} is not installed. Run {install_command(extra)} here"
                " and on Spark's workers."
            ) from error
