"""The archive in partitions of a day, so that a day is dropped at once."""

from __future__ import annotations

from typing import Final

from django.db import migrations

from django_outbox.conf import schema_settings

TABLE: Final = schema_settings().TABLE

DIVIDE: Final = f"""
ALTER TABLE "{TABLE}_archive" RENAME TO "{TABLE}_archive_rest";
CREATE TABLE "{TABLE}_archive" (LIKE "{TABLE}_archive_rest" INCLUDING ALL)
    PARTITION BY RANGE (archived_at);
COMMENT ON TABLE "{TABLE}_archive" IS 'Messages that were sent.';
ALTER TABLE "{TABLE}_archive" ATTACH PARTITION "{TABLE}_archive_rest" DEFAULT;
"""
"""What is there already becomes the partition for all that has no day's own."""

UNITE: Final = f"""
CREATE TABLE "{TABLE}_archive_whole" (LIKE "{TABLE}_archive" INCLUDING ALL);
INSERT INTO "{TABLE}_archive_whole" SELECT * FROM "{TABLE}_archive";
DROP TABLE "{TABLE}_archive";
ALTER TABLE "{TABLE}_archive_whole" RENAME TO "{TABLE}_archive";
COMMENT ON TABLE "{TABLE}_archive" IS 'Messages that were sent.';
"""  # noqa: S608 - a setting, and checked

TEND: Final = f"""
DO $migration$ BEGIN EXECUTE pg_catalog.format($create$
CREATE FUNCTION %1$I."{TABLE}_archive_least"() RETURNS interval
LANGUAGE sql IMMUTABLE AS $function$ SELECT interval '1 day' $function$;
CREATE FUNCTION %1$I."{TABLE}_archive_tend"(retention double precision)
RETURNS integer LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET lock_timeout = '1s' AS $function$
DECLARE
    archive regclass := format('%%I.%%I', %1$L, '{TABLE}_archive')::regclass;
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
            -- Rows of this day are in the rest already, and stay there.
            WHEN check_violation THEN NULL;
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
    DELETE FROM %1$I."{TABLE}_archive_rest" WHERE archived_at < oldest;
    RETURN dropped;
END $function$ $create$, pg_catalog.current_schema());
END $migration$;
REVOKE ALL ON FUNCTION "{TABLE}_archive_tend" FROM PUBLIC;
SELECT "{TABLE}_archive_tend"(0);
"""  # noqa: S608 - a setting, and checked
"""
Makes the partitions of today and the next two days, drops those too old.

With the rights of whoever migrates: the leader's role may archive, not make
tables. So all that it does is bounded. It finds functions in `pg_catalog` only,
since others may have put one of the same name into the schema of the tables, and
drops nothing younger than the owner's `_archive_least()`. UTC divides the days.
"""


class Migration(migrations.Migration):
    """Divide the archive; the setting TABLE shapes it."""

    dependencies = (("django_outbox", "0003_staging"),)

    operations = (
        migrations.RunSQL(DIVIDE, UNITE, hints={"model_name": "archivedrecord"}),
        migrations.RunSQL(
            TEND,
            f'DROP FUNCTION "{TABLE}_archive_tend", "{TABLE}_archive_least"',
            hints={"model_name": "archivedrecord"},
        ),
    )
