"""`python -m django_outbox.devstack`: run both services until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys

from . import DevstackError, Stack, devstack
from .published import published
from .stack import VARIABLES


def main() -> int:
    """Run the services in the foreground and print their addresses."""
    argparse.ArgumentParser(
        prog="python -m django_outbox.devstack",
        description="Run Postgres and Kafka in the foreground until Ctrl-C.",
    ).parse_args()
    # SIGTERM shuts down as Ctrl-C does. SIGINT needs a handler, too: a process in the
    # background of a script starts with it ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        with devstack(progress=_say) as stack, published(stack.environment) as obstacle:
            for name, value in stack.environment.items():
                sys.stdout.write(f"export {name}={value}\n")
            sys.stdout.flush()
            if obstacle:
                _say(f"{obstacle} Export the variables above to use this one.")
            _say(ending(stack))
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except DevstackError as error:
        _say(str(error))
        return 1
    return 0


def ending(stack: Stack) -> str:
    """Return one line that says which services Ctrl-C ends."""
    ends, external = [], []
    for name, service in (("Postgres", stack.postgres), ("Kafka", stack.kafka)):
        if service.source == "environment":
            external.append(f"{name} ({VARIABLES[name]})")
        else:
            ends.append(name)
    owner = "its" if len(ends) == 1 else "their"
    effect = f"stops {' and '.join(ends)} and deletes {owner} data"
    if not ends:
        effect = "ends this command"
    left = f" Not managed here: {', '.join(external)}." if external else ""
    return f"Running; Ctrl-C {effect}.{left}"


def _say(line: str) -> None:
    # One write for each line, because both services report at the same time.
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
