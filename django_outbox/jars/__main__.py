"""`python -m django_outbox.jars LIST`: download one of the pinned lists."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from .coordinates import read_list
from .resolver import JarError, resolve


def main() -> int:
    """Download what is missing; return the exit code."""
    parser = ArgumentParser(
        prog="python -m django_outbox.jars",
        description="Download pinned Java archives into this user's cache folder.",
    )
    parser.add_argument("list", choices=("kafka", "spark"))
    try:
        resolve(read_list(parser.parse_args().list), progress=_say)
    except JarError as error:
        _say(str(error))
        return 1
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
