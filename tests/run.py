"""
Run the tests: `python3 tests/run.py [what pytest understands]`.

Makes the environment when it is missing, starts the services once for the
whole session, hands over to pytest and leaves nothing running. Paths are
relative to the checkout; without one, all tests but the benchmarks run.

`python3 tests/run.py --bench [names]` measures instead; `--bench --help` tells.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Python puts this script's folder first; the tests import from the checkout.
sys.path[0] = str(ROOT)

from django_outbox.devstack.bootstrap import ensure_environment  # noqa: E402


def main() -> int:
    """Return the exit code of pytest, or of the benchmarks."""
    ensure_environment("dev")
    import pytest

    from django_outbox.devstack import DevstackError, devstack

    os.chdir(ROOT)
    if sys.argv[1:2] == ["--bench"]:
        from tests.benchmarks.suite import main as measure

        return measure(sys.argv[2:])
    with ExitStack() as running:
        try:
            stack = running.enter_context(devstack(progress=_say))
        except DevstackError as error:
            # Tests that need a service skip, or fail in CI, each with this reason.
            _say(str(error))
        else:
            os.environ.update(stack.environment)
        return int(pytest.main(sys.argv[1:]))


def _say(line: str) -> None:
    # One write for each line: both services report at once.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
