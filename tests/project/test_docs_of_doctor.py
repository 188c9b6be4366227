"""The page of the doctor has every finding of the code, and no other."""

from __future__ import annotations

import re

from django_outbox.operations.finding_kinds import KINDS

from .checkout import ROOT

PAGE = (ROOT / "docs/operations/doctor.md").read_text("utf-8")


def test_every_finding_is_there_with_its_level_and_its_risk() -> None:
    table = PAGE.partition("\n## Findings\n")[2].partition("\n## ")[0]
    row = re.compile(r"^\| `(.+?)` \| (.+?) \| .+? \| (.+?) \| .+ \|$", re.MULTILINE)
    rows = row.findall(table)
    assert rows == [(kind.name, kind.level.value, kind.risk) for kind in KINDS]


def test_the_example_prints_what_the_code_says() -> None:
    example = PAGE.partition("```console\n")[2].partition("```")[0].splitlines()
    found = {kind.name: kind for kind in KINDS}
    shown = [line for line in example if line.startswith(("error ", "warning "))]
    assert len(shown) == 2
    for line in shown:
        kind = found[line.split()[1]]
        assert line == f"{kind.level.value:<8} {kind.name}"
        assert example[example.index(line) + 1] == f"  {kind.risk}"
