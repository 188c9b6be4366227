"""The clock of leases runs on while the machine is suspended."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Final

import pytest

SUSPENDED: Final = 86_400
"""Seconds for which the machine seems to have been suspended."""

AHEAD: Final = """
import time
from django_outbox.clock import boottime, boottime_ns
print(boottime() - time.monotonic(), boottime_ns() / 1e9 - time.monotonic())
"""
"""Prints by how much each clock is ahead of one that stands still meanwhile."""


def test_time_goes_on_while_the_machine_is_suspended() -> None:
    if (unshare := shutil.which("unshare")) is None:
        pytest.skip("unshare is not installed: it makes a time namespace")
    in_namespace = [unshare, "-U", "-r", "-T", "--boottime", str(SUSPENDED)]
    if subprocess.run([*in_namespace, "true"], check=False).returncode:
        pytest.skip("time namespaces are not allowed here")
    ran = subprocess.run(
        [*in_namespace, sys.executable, "-c", AHEAD],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert min(map(float, ran.stdout.split())) > SUSPENDED - 60
