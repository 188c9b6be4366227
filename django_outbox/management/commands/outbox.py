"""Looking at an outbox and tending it: status, release, series, prune, …."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from ...conf import settings
from ...models import (
    ArchivedRecord,
    OutboxRecord,
    ParkedRecord,
    ProcessedMessage,
    Series,
    StagedRecord,
)
from ...privileges import grants
from ...routing import outbox_database
from .. import cluster, identity, origins
from ..offsets import rewind_topics
from ..series import close_series, list_series

BLOCKED_SHOWN: Final = 20
"""Blocked rows that `status` lists."""
_ROLES: Final = ("app", "harvester", "consumer", "operator")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Command(BaseCommand):
    """`manage.py outbox`: each subcommand is a method of its own name."""

    help = "Show what waits in the outbox, put parked records back, prune the archive."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        status = verbs.add_parser("status", help="what waits, is blocked or is parked")
        status.add_argument("--format", choices=("text", "json"), default="text")
        release = verbs.add_parser("release", help="put parked records back")
        release.add_argument("ids", nargs="*", type=int, metavar="ID")
        release.add_argument("--all", action="store_true", help="all parked records")
        series = verbs.add_parser("series", help="list, release or discard series")
        series.add_argument(
            "action", nargs="?", choices=("list", "release", "discard"), default="list"
        )
        series.add_argument("names", nargs="*", metavar="NAME")
        prune = verbs.add_parser("prune", help="delete old rows of the archive table")
        prune.add_argument("--older-than", type=_age, required=True, metavar="AGE")
        prune.add_argument(
            "--processed",
            action="store_true",
            help="of the processed keys instead: such messages count as new again",
        )
        rewind = verbs.add_parser(
            "rewind", help="let a consumer group read topics from their beginning"
        )
        rewind.add_argument("group", metavar="GROUP")
        rewind.add_argument("topics", nargs="+", metavar="TOPIC")
        roles = verbs.add_parser("grants", help="print the least privileges as SQL")
        roles.add_argument("--app", metavar="ROLE", help="role that stashes")
        roles.add_argument("--harvester", metavar="ROLE", help="role that harvests")
        roles.add_argument("--consumer", metavar="ROLE", help="role that consumes")
        roles.add_argument("--operator", metavar="ROLE", help="role of this command")
        clusters = verbs.add_parser("cluster", help="make this outbox one of several")
        clusters.add_argument("action", choices=("init",))
        clusters.add_argument(
            "--above", type=int, default=0, metavar="ID", help="draw higher ids only"
        )
        instead = clusters.add_mutually_exclusive_group()
        instead.add_argument(
            "--check", action="store_true", help="only say whether it has run"
        )
        instead.add_argument("--dry-run", action="store_true", help="only print SQL")
        which = verbs.add_parser("identity", help="which outbox this is")
        which.add_argument(
            "--new",
            action="store_true",
            help="make it another outbox, when its database is a copy of another's",
        )
        for verb in (status, release, series, prune, rewind, roles, clusters, which):
            verb.add_argument("--database", metavar="ALIAS", help="where the outbox is")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = outbox_database(options["database"] or settings.DATABASE)
        if alias not in connections:
            raise CommandError(f"There is no database {alias!r} in DATABASES.")
        try:
            getattr(self, options["verb"])(alias, options)
        except DatabaseError as exc:
            reason = str(exc).partition("\n")[0]
            raise CommandError(f"The database {alias!r} refused: {reason}") from exc

    def status(self, alias: str, options: dict[str, Any]) -> None:
        """Show what waits, what is blocked and what is parked."""
        backlog = OutboxRecord.objects.using(alias).backlog()
        parked = ParkedRecord.objects.using(alias).count()
        records = StagedRecord.objects.using(alias)
        staged = {
            "series": Series.objects.using(alias).open().count(),
            "in_series": records.in_series().count(),
            "delayed": records.delayed().count(),
        }
        blocked = list(
            OutboxRecord.objects.using(alias)
            .blocked()
            .values("id", "kafka_topic", "attempts", "last_error")[:BLOCKED_SHOWN]
        )
        clusters = origins.report(alias) if settings.CLUSTERS_COUNT > 1 else None
        which = identity.report(alias)
        if options["format"] == "json":
            report = {
                "database": alias,
                "table": OutboxRecord._meta.db_table,
                "identity": which,
                "backlog": backlog._asdict(),
                "staged": staged,
                "parked": parked,
                "blocked": blocked,
                **({"clusters": clusters} if clusters else {}),
            }
            self.stdout.write(json.dumps(report))
            return
        for line in identity.describe(which):
            self.stdout.write(line)
        at_least = "at least " if backlog.is_capped else ""
        waiting = f"{at_least}{backlog.records:,}, oldest {backlog.oldest_age:.1f} s"
        self.stdout.write(f"waiting  {waiting}")
        for line in origins.describe(clusters) if clusters else ():
            self.stdout.write(line)
        self.stdout.write(
            "staged   {in_series:,} in {series:,} open series, {delayed:,} for "
            "later".format(**staged)
        )
        self.stdout.write(f"parked   {parked:,}")
        more = " or more" if len(blocked) == BLOCKED_SHOWN else ""
        self.stdout.write(f"blocked  {len(blocked)}{more}")
        for row in blocked:
            failed = f"{row['attempts']} attempts: {row['last_error']!r}"
            self.stdout.write(f"  id {row['id']} to {row['kafka_topic']}, {failed}")

    def release(self, alias: str, options: dict[str, Any]) -> None:
        """Put parked records back into the outbox."""
        ids = set(options["ids"])
        if bool(ids) == options["all"]:
            raise CommandError("Name the ids of parked records, or --all.")
        parked = ParkedRecord.objects.using(alias)
        chosen = parked.filter(id__in=ids) if ids else parked
        # Several parked records may have one id, after a failover.
        wanted = max(len(ids), chosen.count())
        released = chosen.release()
        self.stdout.write(f"{released:,} back in the outbox")
        if released < wanted:
            raise CommandError(
                f"{wanted - released} of {wanted} are not parked, or their id is "
                "taken by another row of the outbox."
            )

    def series(self, alias: str, options: dict[str, Any]) -> None:
        """List the open series, or end those that are named."""
        if options["action"] == "list":
            for line in list_series(alias):
                self.stdout.write(line)
            return
        for line in close_series(alias, options["action"], options["names"]):
            self.stdout.write(line)

    def prune(self, alias: str, options: dict[str, Any]) -> None:
        """Delete old rows of one table, a chunk at a time."""
        table = ProcessedMessage if options["processed"] else ArchivedRecord
        old = table.objects.using(alias).older_than(options["older_than"])
        total = 0
        for deleted in old.prune():
            total += deleted
            self.stdout.write(f"{total:,} pruned")

    def rewind(self, alias: str, options: dict[str, Any]) -> None:
        """Let a consumer group read topics from their beginning."""
        for line in rewind_topics(alias, options["group"], options["topics"]):
            self.stdout.write(line)

    def grants(self, alias: str, options: dict[str, Any]) -> None:
        """Print the least privileges of the roles that are named."""
        roles = {name: options[name] for name in _ROLES}
        if not any(roles.values()):
            raise CommandError(f"Name a role: --{', --'.join(_ROLES)}.")
        for statement in grants(OutboxRecord._meta.db_table, **roles):
            self.stdout.write(statement)

    def cluster(self, alias: str, options: dict[str, Any]) -> None:
        """Make the outbox that of this cluster."""
        if options["check"]:
            lines = cluster.check(alias)
        elif options["dry_run"]:
            lines = cluster.print_init(alias, above=options["above"])
        else:
            lines = cluster.init(alias, above=options["above"])
        for line in lines:
            self.stdout.write(line)

    def identity(self, alias: str, options: dict[str, Any]) -> None:
        """Say which outbox this is, or make it another one."""
        known = identity.describe(identity.report(alias))
        for line in identity.renew(alias) if options["new"] else known:
            self.stdout.write(line)


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} must look like 90d, 12h, 30m or 45s")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
