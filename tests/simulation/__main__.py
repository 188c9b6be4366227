"""
Replay one history, or play many.

    python -m tests.simulation --seed 123 --trace
    python -m tests.simulation --histories 100000
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from .history import play
from .hunts import MUTANTS
from .plan import DELIVERIES
from .tally import Tally, in_parallel, workers


def main(arguments: list[str] | None = None) -> int:
    """Return 1 when a promise broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="replay this history")
    parser.add_argument("--trace", action="store_true", help="... step by step")
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), help="... with this deliberate bug"
    )
    parser.add_argument(
        "--delivery", choices=sorted(DELIVERIES), default="at-least-once"
    )
    parser.add_argument("--histories", type=int, default=10_000, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, help="processes; one for each processor")
    options = parser.parse_args(arguments)
    if options.seed is None:
        last = options.first + options.histories
        return _play_many(range(options.first, last), options.jobs, options.delivery)
    return _replay(
        options.seed,
        options.delivery,
        mutant=options.mutant,
        is_tracing=options.trace,
    )


def _replay(seed: int, delivery: str, *, mutant: str | None, is_tracing: bool) -> int:
    with MUTANTS[mutant].applied() if mutant else nullcontext():
        outcome = play(seed, delivery, is_tracing=is_tracing)
    _say(str(outcome.plan))
    for line in outcome.trace:
        _say(line)
    _say(outcome.broken or "every promise held")
    return int(bool(outcome.broken))


def _play_many(seeds: range, jobs: int | None, delivery: str) -> int:
    total = Tally()
    with workers(jobs) as pool:
        for total in in_parallel(pool, seeds, delivery):
            if total.histories % 1000 == 0:
                broken = len(total.broken)
                _say(f"{total.histories:7} histories, {broken} broken promises")
    _say(str(total))
    return int(bool(total.broken))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
