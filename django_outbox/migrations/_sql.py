"""SQL of the migrations: storage, indexes, the archive, the identity."""

from __future__ import annotations

from typing import Final

from django_outbox.conf import schema_settings

TABLE: Final = schema_settings().TABLE

OUTBOX_STORAGE: Final = f"""\
ALTER TABLE "{TABLE}" SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    vacuum_truncate = false,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_cost_delay = 0,
    toast.vacuum_truncate = false
)"""
"""
For a queue: a row is inserted, marked once and deleted, and the table stays small.

Half of each page stays free for the marked version of a row, which then needs no new
index entry. A vacuum starts after a number of dead rows and not after a share of the
table, does not pause, and does not lock the table to return pages.
"""

STAGED_STORAGE: Final = f"""\
ALTER TABLE "{TABLE}_staged" SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_cost_delay = 0
)"""

SERIES_STORAGE: Final = f"""\
ALTER TABLE "{TABLE}_series" SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
)"""
"""Half of each page stays free: each message updates the count of its series."""

SERIES_INDEXES: Final = f"""\
CREATE INDEX "{TABLE}_series_due" ON "{TABLE}_series" (state, expires_at);
CREATE INDEX "{TABLE}_series_closed" ON "{TABLE}_series" (closed_at)
    WHERE closed_at IS NOT NULL;
"""

STAGED_INDEXES: Final = f"""\
CREATE INDEX "{TABLE}_staged_due" ON "{TABLE}_staged" (not_before, staged_id)
    WHERE not_before IS NOT NULL;
CREATE INDEX "{TABLE}_staged_series" ON "{TABLE}_staged" (series_id, staged_id)
    WHERE series_id IS NOT NULL;
"""
"""
SQL and not the models create these indexes, because a schema has each name of an index
once: named after the table they exceed the thirty characters that Django allows.
"""

DIVIDE: Final = f"""
ALTER TABLE "{TABLE}_archive" RENAME TO "{TABLE}_archive_rest";
CREATE TABLE "{TABLE}_archive" (LIKE "{TABLE}_archive_rest" INCLUDING ALL)
    PARTITION BY RANGE (archived_at);
COMMENT ON TABLE "{TABLE}_archive" IS 'Messages that were sent.';
ALTER TABLE "{TABLE}_archive" ATTACH PARTITION "{TABLE}_archive_rest" DEFAULT;
"""
"""The table becomes the default partition of a new one, for rows of other days."""

MOVED_AT_MOST: Final = 100_000
"""Rows that are moved when their day gets a partition late: for less than a second."""

LEAST: Final = f"""
CREATE FUNCTION "{TABLE}_archive_least"() RETURNS interval
LANGUAGE sql IMMUTABLE AS $function$ SELECT interval '1 day' $function$;
"""
"""The owner may replace it, so that no day is dropped that is younger."""

TEND: Final = f"""
DO $migration$ BEGIN EXECUTE pg_catalog.format($create$
CREATE OR REPLACE FUNCTION %1$I."{TABLE}_archive_tend"(retention double precision)
RETURNS integer LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET lock_timeout = '1s' AS $function$
DECLARE
    archive regclass := format('%%I.%%I', %1$L, '{TABLE}_archive')::regclass;
    began timestamptz := clock_timestamp();
    kept interval;
    oldest timestamptz;
    day date;
    part text;
    old regclass;
    dropped integer := 0;
BEGIN
    IF retention > 0 THEN
        kept := make_interval(secs => retention);
        IF kept < %1$I."{TABLE}_archive_least"() THEN
            RAISE EXCEPTION
                'A retention of %% is less than {TABLE}_archive_least() allows: %%',
                kept, %1$I."{TABLE}_archive_least"()
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    FOR n IN 0..2 LOOP
        day := current_date + n;
        part := '{TABLE}_' || to_char(day::timestamp, 'YYYYMMDD'::text);
        CONTINUE WHEN to_regclass(format('%%I.%%I', %1$L, part)) IS NOT NULL;
        BEGIN
            EXECUTE format(
                'CREATE TABLE %%I.%%I PARTITION OF %%s FOR VALUES FROM (%%L) TO (%%L)',
                %1$L, part, archive, day, day + 1
            );
        EXCEPTION
            WHEN duplicate_table THEN
                -- Another process has made it meanwhile.
                NULL;
            WHEN check_violation THEN
                -- Rows of this day are in the rest. A few are moved: many stay there.
                LOCK TABLE %1$I."{TABLE}_archive_rest" IN ACCESS EXCLUSIVE MODE;
                PERFORM FROM %1$I."{TABLE}_archive_rest"
                WHERE archived_at >= day AND archived_at < day + 1
                OFFSET {MOVED_AT_MOST} LIMIT 1;
                CONTINUE WHEN FOUND;
                EXECUTE format(
                    'CREATE TABLE %%I.%%I (LIKE %%s INCLUDING ALL)', %1$L, part, archive
                );
                EXECUTE format(
                    'WITH moved AS (DELETE FROM %%I.%%I WHERE archived_at >= %%L'
                    ' AND archived_at < %%L RETURNING *)'
                    ' INSERT INTO %%I.%%I SELECT * FROM moved',
                    %1$L, '{TABLE}_archive_rest', day, day + 1, %1$L, part
                );
                EXECUTE format(
                    'ALTER TABLE %%s ATTACH PARTITION %%I.%%I'
                    ' FOR VALUES FROM (%%L) TO (%%L)',
                    archive, %1$L, part, day, day + 1
                );
        END;
    END LOOP;
    IF kept IS NULL THEN
        RETURN 0;
    END IF;
    oldest := now() - kept;
    FOR old IN
        SELECT c.oid
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = archive
            AND c.relname ~ '_[0-9]{{8}}$'
            AND to_date(right(c.relname::text, 8), 'YYYYMMDD') + interval '1 day'
                <= oldest
    LOOP
        EXECUTE format('DROP TABLE %%s', old);
        dropped := dropped + 1;
    END LOOP;
    -- In another call than drops, which would wait for it, and in pieces: a time-out
    -- of the role would undo all.
    WHILE dropped = 0 AND clock_timestamp() < began + interval '2 s' LOOP
        DELETE FROM %1$I."{TABLE}_archive_rest" WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM %1$I."{TABLE}_archive_rest"
            WHERE archived_at < oldest
            LIMIT 10000
        ));
        EXIT WHEN NOT FOUND;
    END LOOP;
    RETURN dropped;
END $function$ $create$, pg_catalog.current_schema());
END $migration$;
"""  # noqa: S608 - a setting, and checked
"""
Creates the partitions of today and of the next two days, and drops old ones; a call
that drops none deletes from the rest instead, for some seconds.

It runs with the rights of the role that migrates, because the leader's role may insert
into the archive but not create tables. So it can do little else: it finds functions in
`pg_catalog` only, since other roles may have created a function of the same name in
the schema of the tables, and it drops nothing younger than the owner's
`_archive_least()`. Days are those of UTC.
"""

BEGIN_TENDING: Final = f"""
REVOKE ALL ON FUNCTION "{TABLE}_archive_tend" FROM PUBLIC;
SELECT "{TABLE}_archive_tend"(0);
"""

DROP_TEND: Final = f'DROP FUNCTION "{TABLE}_archive_tend", "{TABLE}_archive_least"'

IDENTIFY: Final = f"""
CREATE TABLE "{TABLE}_identity" (
    is_only boolean PRIMARY KEY DEFAULT true
        CONSTRAINT "outbox_identity_is_only" CHECK (is_only),
    outbox uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamp with time zone NOT NULL DEFAULT now()
);
COMMENT ON TABLE "{TABLE}_identity" IS
    'Which outbox this is: one row, made by migrate, and the same in a copy.';
COMMENT ON COLUMN "{TABLE}_identity".outbox IS
    'Names the leader topic and the leader group; part of every heartbeat.';
INSERT INTO "{TABLE}_identity" DEFAULT VALUES;
"""
"""A table without a model, because `flush` and Django's tests empty all others."""

DROP_IDENTITY: Final = f'DROP TABLE "{TABLE}_identity"'
