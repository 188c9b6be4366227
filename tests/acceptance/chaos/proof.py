"""The page that says what each fault did to records: docs/operations/proof.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pytest

from ...processes import ROOT
from . import continuing
from .fault_matrix import BROKER_FAULTS, ELSEWHERE, FAULTS
from .scene import RELAYS

PAGE: Final = ROOT / "docs/operations/proof.md"

PROPERTY: Final = "proof"
"""Of a test's report: the fields of a `Proof` but the last."""

HEAD: Final = """\
# Proof

What faults did to records, on real servers, while four threads wrote business
transactions that stay open, roll back and contend for keys. The truth is written in the
same transaction as the messages. Each fault strikes in the middle of a backlog of
{backlog:,} records.

```console
$ python3 tests/run.py --chaos          # all of it; writes this page
$ python3 tests/run.py --chaos -k F7-   # one fault
```

The first column is what `-k` selects. `OUTBOX_TEST_SEEDS=3` plays each fault three
times, with other transactions. A run of all that was interrupted goes on where it
stopped.

Unless a cell says otherwise, no record was lost, made up, altered, or out of the order
of its key, and no two processes led at once. A cell says how many records came twice,
and how long nothing came into the topic beyond the time that the fault itself lasted:
the most of all seeds. W is `MAX_IN_FLIGHT`, {window} here; a session has {session:g} s.
With exactly-once, nothing may come twice. Of four shards every process leads some: each
term that ends has a W of its own, and whatever ends one takes as long as F2. What is
not in this table, and the test that proves it: [What it promises](../promises.md).
What kills, stops and an outage do to Debezium and to other packages:
[Performance](../performance.md#harvester).

Run on {date}, commit {commit}, seeds: {seeds}.

| | fault | at most | {relays} |
|---|---|---|{columns}|
"""


ELSEWHERE_HEAD: Final = """
Other faults have tests of their own:

| | fault | the test |
|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What one fault did to one relay."""

    fault: str
    """Its text."""
    relay: str
    seed: int
    twice: int
    """Records that came more than once."""
    stop: float
    """Seconds in which nothing came into the topic, beyond the fault's own."""
    is_kept: bool
    """Whether all promises and bounds were kept."""


def write(terminal: pytest.TerminalReporter, cases: int, **figures: float) -> None:
    """Print a table of the tests that came to their end; write the page if all did."""
    reports = terminal.getreports("passed") + terminal.getreports("failed")
    now = [
        (report, value)
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == PROPERTY and isinstance(value, dict)
    ]
    if not now:
        return
    before = continuing.tried(terminal.config)
    proofs = [Proof(**value, is_kept=True) for value in before.values()]
    proofs += [Proof(**value, is_kept=report.passed) for report, value in now]
    table = "".join(f"{line}\n" for line in _rows(proofs))
    terminal.section("what the faults did")
    terminal.write(table)
    is_whole = len(proofs) == cases
    is_green = not terminal.getreports("failed") + terminal.getreports("error")
    found = before | {report.nodeid: value for report, value in now}
    continuing.keep(terminal.config, found if is_green and not is_whole else None)
    if is_whole:
        PAGE.write_text(_head(proofs, **figures) + table + _elsewhere(), "utf-8")
        terminal.write_line(f"written: {PAGE.relative_to(ROOT)}")


def _head(proofs: Sequence[Proof], **figures: float) -> str:
    seeds = ", ".join(map(str, sorted({proof.seed for proof in proofs})))
    return HEAD.format(
        date=datetime.now(UTC).date(),
        commit=continuing.commit(),
        seeds=seeds,
        relays=" | ".join(RELAYS),
        columns="|".join("---" for _ in RELAYS),
        **figures,
    )


def _elsewhere() -> str:
    rows = "".join(
        f"| {number} | {text} | `{test}` |\n"
        for number, (text, test) in ELSEWHERE.items()
    )
    return f"{ELSEWHERE_HEAD}{rows}"


def _rows(proofs: Sequence[Proof]) -> list[str]:
    rows = []
    for fault in FAULTS + BROKER_FAULTS:
        of_fault = [proof for proof in proofs if proof.fault == fault.text]
        if not of_fault:
            continue
        allowed = f"{fault.back_within:g} s"
        if fault.windows:
            allowed = f"{fault.windows} × W twice, {allowed}".replace("1 × ", "")
        cells = [
            _cell([proof for proof in of_fault if proof.relay == relay])
            for relay in RELAYS
        ]
        rows.append(
            "| " + " | ".join([fault.number, fault.text, allowed, *cells]) + " |"
        )
    return rows


def _cell(proofs: Sequence[Proof]) -> str:
    if not proofs:
        return ""
    twice, stop = (max(getattr(p, name) for p in proofs) for name in ("twice", "stop"))
    cell = f"{twice:,}, {stop:.1f} s"
    return cell if all(proof.is_kept for proof in proofs) else f"**broken**: {cell}"
