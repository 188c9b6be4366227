"""A handler that ends its process has failed, and so has one that is cancelled."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager

from ..exceptions import ConsumingError


@contextmanager
def exits_as_errors(name: str) -> Iterator[None]:
    """
    Turn what would end the consumer into an error that is counted as an attempt.

    A command that a handler calls may call `sys.exit()`. The next process would get
    the same message, and end, too. Ctrl-C still ends the consumer.

    Args:
        name: of the handler.

    Raises:
        ConsumingError: it was left by SystemExit or CancelledError.
    """
    try:
        yield
    except (SystemExit, CancelledError) as error:
        raise ConsumingError(
            f"{name} raised {error!r}, which is counted as a failure: a message "
            "cannot end the consumer."
        ) from error
