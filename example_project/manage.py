#!/usr/bin/env python
"""
Django's command line for the example project.

Differs from Django's own in one thing: wrong settings end it with code 2 and
one line that names the setting, as operators expect, not with a traceback.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Run one command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    # Last on the path: a checkout in which nothing is installed works, too.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(arguments)
    except ImproperlyConfigured as error:
        line = " ".join(str(error).split())
        sys.stderr.write(f"{Path(arguments[0]).name}: {line}\n")
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv)
