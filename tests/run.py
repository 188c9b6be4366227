"""
Run the tests: `python3 tests/run.py [what pytest understands]`.

Makes the environment when it is missing, starts the services once for the
whole session, hands over to pytest and leaves nothing running. Paths are
relative to the checkout; without one, all tests but the benchmarks run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Python puts this script's folder first; the tests import from the checkout.
sys.path[0] = str(ROOT)

from django_outbox.devstack.bootstrap import ensure_environment  # noqa: E402


def main() -> int:
    """Return pytest's exit code."""
    ensure_environment("dev")
    import pytest

    from django_outbox.devstack import devstack

    os.chdir(ROOT)
    with devstack(progress=_say) as stack:
        os.environ.update(stack.environment)
        return int(pytest.main(sys.argv[1:]))


def _say(line: str) -> None:
    # One write for each line: both services report at once.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
