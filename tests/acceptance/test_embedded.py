"""A harvester in a process of the project's own, as the how-to shows it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from ..processes import ROOT
from .harvesters import Harvesters
from .tables import OutboxTable

PAGE = (ROOT / "docs/howto/embedded.md").read_text("utf-8")
(WORKER,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_worker_of_the_page_sends_and_hands_over(
    harvesters: Harvesters, table: OutboxTable, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER, "utf-8")
    table.insert(topic, "first")
    worker = harvesters.launch(
        "worker",
        # The page itself names the settings.
        *("env", "-u", "DJANGO_SETTINGS_MODULE"),
        *(sys.executable, str(tmp_path / "worker.py")),
        PYTHONPATH=os.pathsep.join([str(ROOT / "example_project"), str(ROOT)]),
    )
    table.wait_until_empty()

    successor = harvesters.start()
    successor.wait_for("ready")
    stopped = worker.terminate()
    assert worker.exit_code() == 0, worker.report()
    successor.wait_for("leader_acquired", after=stopped)
    table.insert(topic, "second")
    table.wait_until_empty()
