"""
Run the tests: `python3 tests/run.py [options] [what pytest understands]`.

Makes the environment when it is missing and leaves nothing running. Paths are
relative to the checkout.

Without a path: first ruff, import-linter and mypy, and nothing else when one of
them objects; then all tests but the benchmarks, in several processes. With a
path: those tests only, in one process. `-n NUMBER` chooses the number of
processes.

    --lint      only ruff, import-linter and mypy
    --no-lint   only the tests
    --chaos     the fault matrix, which writes docs/operations/proof.md (half an hour);
                OUTBOX_TEST_SEEDS=3 plays each fault three times
    --nightly   a hundred times as many random histories, longer and more of some tests

The first test that needs PostgreSQL and Kafka starts them; each process has its
own. DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS count only together with
DEVSTACK_SOURCES=environment; one run at a time then uses these servers.

`python3 tests/run.py --bench [names]` measures instead; `--bench --help` lists
its options. Those of pytest: `.venv/bin/pytest --help`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SERVICES = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")

OPTIONS = {"--chaos", "--lint", "--no-lint", "--nightly"}

CHAOS = "tests/acceptance/chaos"

NIGHTLY = {
    "TESTS_HISTORIES": "40000",
    "TESTS_SOAK": "120",
    "TESTS_COLD_STARTS": "20",
    "TESTS_NIGHTLY": "1",
}

VALUED = {
    *("-c", "-k", "-m", "-p", "--deselect", "--ignore"),
    *("--basetemp", "--junitxml", "--junit-xml", "--log-file", "--rootdir"),
}
"""Options of pytest whose value, the next argument, names no tests to run."""

PROCESSES = 3
"""Most tests wait for servers most of the time, so this is more than two cores."""


def main() -> int:
    """Return the exit code of the linters, of the tests, or of the benchmarks."""
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
    options = OPTIONS & {*sys.argv[1:]}
    return _test([text for text in sys.argv[1:] if text not in OPTIONS], options)


def _test(arguments: list[str], options: set[str]) -> int:
    from tests.linting import lint

    if "--chaos" in options:
        os.environ["TESTS_CHAOS"] = "1"
        arguments = [CHAOS, *arguments]
    is_whole = not names_path(arguments)
    if "--nightly" in options:
        os.environ.update(NIGHTLY)
    if "--lint" in options or (is_whole and "--no-lint" not in options):
        failed = lint(say=_say)
        if failed or "--lint" in options:
            return failed
    return _run_pytest(arguments, is_whole=is_whole)


def _run_pytest(arguments: list[str], *, is_whole: bool) -> int:
    from tests.children import supervise

    sources = os.environ.get("DEVSTACK_SOURCES")
    if sources is None and (unused := [n for n in SERVICES if os.environ.pop(n, None)]):
        _say(
            f"{' and '.join(unused)} not used: a run has servers of its own."
            " DEVSTACK_SOURCES=environment uses those."
        )
    if is_whole and "environment" not in (sources or ""):
        arguments = [f"-n{PROCESSES}", *arguments]
    return supervise([sys.executable, "-m", "pytest", *arguments])


def names_path(arguments: list[str]) -> bool:
    """Whether these arguments of pytest name tests by their path."""
    pairs = zip(["", *arguments], arguments, strict=False)
    return any(_is_path(text) for before, text in pairs if before not in VALUED)


def _is_path(argument: str) -> bool:
    return Path(argument.partition("::")[0]).exists()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Python puts this script's folder first; the tests import from the checkout.
    sys.path[0] = str(ROOT)
    # What is being installed ends, too, as with Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)
