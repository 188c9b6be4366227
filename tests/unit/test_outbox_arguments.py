"""What `manage.py outbox` refuses before it asks the database."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management.base import CommandError

from django_outbox.management.answer import Answer
from django_outbox.management.commands.outbox import Command


def parsed(*arguments: str) -> dict[str, Any]:
    return vars(Command().create_parser("manage.py", "outbox").parse_args(arguments))


@pytest.mark.parametrize("verb", ["top", "tail"])
def test_a_count_is_a_number_from_zero(verb: str) -> None:
    """With -1 the command would not end."""
    assert parsed(verb)["count"] == parsed(verb, "--count", "0")["count"] == 0
    assert parsed(verb, "--count", "3")["count"] == 3
    for wrong in ("-1", "1.5", "x"):
        with pytest.raises(CommandError, match=f"--count: '{wrong}' must be a whole"):
            parsed(verb, "--count", wrong)


def test_a_list_of_series_takes_no_names() -> None:
    options = parsed("series", "list", "import-7")
    answer = Answer(print, is_json=False, flush=lambda: None, database="default")
    with pytest.raises(CommandError, match="leave out the names"):
        options["run"]("default", options, answer)
