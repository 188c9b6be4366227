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
DO $migration$ BEGIN EXECUTE format($create$
CREATE FUNCTION "{TABLE}_archive_tend"(retention double precision)
RETURNS integer LANGUAGE plpgsql
SECURITY DEFINER SET search_path = %1$I, pg_temp
SET timezone = 'UTC' SET lock_timeout = '1s' AS $function$
DECLARE
    day date;
    part text;
    dropped integer := 0;
BEGIN
    FOR day IN SELECT current_date + n FROM generate_series(0, 2) AS n LOOP
        part := '{TABLE}_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(quote_ident(part)) IS NOT NULL;
        BEGIN
            EXECUTE format(
                'CREATE TABLE %%I PARTITION OF "{TABLE}_archive"'
                ' FOR VALUES FROM (%%L) TO (%%L)', part, day, day + 1
            );
        EXCEPTION
            -- Rows of this day are in the rest already, and stay there.
            WHEN check_violation THEN NULL;
        END;
    END LOOP;
    IF retention <= 0 THEN
        RETURN 0;
    END IF;
    FOR part IN
        SELECT c.relname
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = '"{TABLE}_archive"'::regclass
            AND c.relname ~ '_[0-9]{{8}}$'
            AND to_date(right(c.relname, 8), 'YYYYMMDD') + interval '1 day'
                <= now() - make_interval(secs => retention)
    LOOP
        EXECUTE format('DROP TABLE %%I', part);
        dropped := dropped + 1;
    END LOOP;
    DELETE FROM "{TABLE}_archive_rest"
    WHERE archived_at < now() - make_interval(secs => retention);
    RETURN dropped;
END $function$ $create$, current_schema());
END $migration$;
REVOKE ALL ON FUNCTION "{TABLE}_archive_tend" FROM PUBLIC;
SELECT "{TABLE}_archive_tend"(0);
"""  # noqa: S608 - a setting, and checked
"""
Makes the partitions of today and the next two days, drops those too old.

With the rights of whoever migrates: the leader's role may archive, not make
tables. UTC divides the days.
"""


class Migration(migrations.Migration):
    """Divide the archive; the setting TABLE shapes it."""

    dependencies = (("django_outbox", "0003_staging"),)

    operations = (
        migrations.RunSQL(DIVIDE, UNITE, hints={"model_name": "archivedrecord"}),
        migrations.RunSQL(
            TEND,
            f'DROP FUNCTION "{TABLE}_archive_tend"',
            hints={"model_name": "archivedrecord"},
        ),
    )
