"""
Run the tests: `python3 tests/run.py [what pytest understands]`.

Makes the environment when it is missing, starts the services once for the
whole session, hands over to pytest and leaves nothing running. Paths are
relative to the checkout; without one, all tests but the benchmarks run.

The servers are the run's own, so that two runs do not meet, whatever
DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS say. DEVSTACK_SOURCES=environment
uses the servers that these two name; one run at a time.

`python3 tests/run.py --bench [names]` measures instead; `--bench --help` lists
its options. Those of pytest: `.venv/bin/pytest --help`.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Python puts this script's folder first; the tests import from the checkout.
sys.path[0] = str(ROOT)


SERVICES = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")


def main() -> int:
    """Return the exit code of pytest, or of the benchmarks."""
    is_benchmark = sys.argv[1:2] == ["--bench"]
    if not is_benchmark and {"-h", "--help"} & {*sys.argv[1:]}:
        _say((__doc__ or "").strip())
        return 0
    from django_outbox.devstack.bootstrap import ensure_environment

    ensure_environment("dev")
    os.chdir(ROOT)
    if is_benchmark:
        from tests.benchmarks.suite import main as measure

        return measure(sys.argv[2:])
    return _test()


def _test() -> int:
    import pytest

    from django_outbox.devstack import DevstackError, devstack
    from django_outbox.devstack.stack import PRIVATE, SOURCES

    is_chosen = "DEVSTACK_SOURCES" in os.environ
    if not is_chosen and (unused := [name for name in SERVICES if name in os.environ]):
        _say(
            f"{' and '.join(unused)} not used: a run has servers of its own."
            " DEVSTACK_SOURCES=environment uses those."
        )
    with ExitStack() as running:
        try:
            stack = running.enter_context(
                devstack(sources=SOURCES if is_chosen else PRIVATE, progress=_say)
            )
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
