"""`python -m django_outbox.devstack`: both services, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys

from . import DevstackError, Stack, devstack
from .published import published
from .stack import VARIABLES


def main() -> int:
    """Run the services in the foreground and print how to reach them."""
    argparse.ArgumentParser(
        prog="python -m django_outbox.devstack",
        description="Run a Postgres and a Kafka in the foreground, until Ctrl-C.",
    ).parse_args()
    # Stop in good order when a supervisor asks for it, as on Ctrl-C; also in the
    # background of a script, where SIGINT is ignored from the start.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        with devstack(progress=_say) as stack, published(stack.environment) as is_first:
            for name, value in stack.environment.items():
                sys.stdout.write(f"export {name}={value}\n")
            sys.stdout.flush()
            if not is_first:
                _say(
                    "Another devstack runs, and it is the one that is found without"
                    " variables. Export the lines above to use this one."
                )
            _say(ending(stack))
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except DevstackError as error:
        _say(str(error))
        return 1
    return 0


def ending(stack: Stack) -> str:
    """One line: which services Ctrl-C ends and which it leaves alone."""
    ends, found = [], []
    for name, service in (("Postgres", stack.postgres), ("Kafka", stack.kafka)):
        if service.source == "environment":
            found.append(f"{name}, found in the environment ({VARIABLES[name]})")
        else:
            ends.append(f"{name} and its data")
    if not ends:
        ends.append("this command")
    left = f" Left alone: {'; '.join(found)}." if found else ""
    return f"Running; Ctrl-C ends {', '.join(ends)}.{left}"


def _say(line: str) -> None:
    # One write for each line: both services report at once.
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
