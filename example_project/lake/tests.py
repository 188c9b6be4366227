"""Leader tasks run real commands; `jars` is one that does not need Spark."""

from __future__ import annotations

import subprocess
from uuid import uuid4

from billing.models import Leadership
from django.test import TransactionTestCase

from django_outbox.contrib.fencing import UnitRefused
from django_outbox.contrib.singleton import LeaderRun
from django_outbox.pipeline.__main__ import parser

from .tasks import AUDIT, MAINTAIN, RUN, load_records, pipeline


class PipelineTest(TransactionTestCase):
    def setUp(self) -> None:
        self.leader_id = str(uuid4())
        name = load_records.name
        self.run_of_mine = LeaderRun(
            Leadership.objects, name=name, leader_id=self.leader_id
        )

    def lead(self) -> None:
        name = load_records.name
        Leadership.objects.claim(name, self.leader_id, is_fresh=lambda: True)

    def test_the_leader_runs_a_command_to_its_end(self) -> None:
        self.lead()
        pipeline(self.run_of_mine, ["jars"])

    def test_a_bad_exit_code_fails_the_task(self) -> None:
        self.lead()
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            pipeline(self.run_of_mine, ["jars", "--no-such-option"])
        self.assertEqual(caught.exception.returncode, 2)

    def test_nobody_else_runs_it(self) -> None:
        with self.assertRaises(UnitRefused):
            pipeline(self.run_of_mine, ["jars"])

    def test_every_command_is_one(self) -> None:
        for arguments in (RUN, AUDIT, MAINTAIN):
            parser().parse_args(arguments)
