-- Every statement that the harvester sends, each under its name.
-- statements.py fills in what stands in braces: identifiers, and what replaces
-- a column that this table lacks. Values are always parameters. A literal brace
-- is doubled, and there is no semicolon.
--
-- {fields} are the columns of a record. A write by a leader is limited to rows
-- that are {owned}: marked by its leader id, or, where nothing is marked, of the
-- very message ids that it read; so a leader of the past changes nothing.
--
-- What reads rows ends where their values and headers have so many bytes:
-- {bytes_before} counts them in front of each row, and the first row always {fits}.

-- name: session
-- Bound what follows, for the session or for its transaction only. A queue's
-- statistics tell of the past ("empty", "all marked by this leader"), and would
-- make the planner read and sort the whole table; every row that is wanted here
-- is found by the primary key.
SELECT
    set_config('statement_timeout', %(statement_timeout)s, %(is_local)s),
    set_config('lock_timeout', %(lock_timeout)s, %(is_local)s),
    set_config(
        'synchronous_commit',
        coalesce(%(synchronous_commit)s::text, current_setting('synchronous_commit')),
        %(is_local)s
    ),
    set_config(
        'role', coalesce(%(role)s::text, current_setting('role')), %(is_local)s
    ),
    set_config('default_transaction_isolation', 'read committed', %(is_local)s),
    set_config('enable_seqscan', 'off', %(is_local)s),
    set_config('enable_bitmapscan', 'off', %(is_local)s),
    set_config('enable_sort', 'off', %(is_local)s)

-- name: backend
-- Which server process answers; another one than at connect means a pooler.
SELECT pg_backend_pid()

-- name: listen
-- Be told of commits by writers that notify.
LISTEN {channel}

-- name: columns
-- Which columns the table has.
SELECT attname::text
FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped

-- name: ping
-- Ask for nothing, but of the table.
SELECT FROM {table} LIMIT 0

-- name: mark
-- Claim rows from the head that this leader has not marked, whoever else has.
-- No lock in the page: the update waits for another's and takes the row over.
WITH page AS MATERIALIZED (
    SELECT o.id
    FROM (
        SELECT o.id, {bytes_before}
        FROM (
            SELECT *
            FROM {table}
            WHERE leader_id IS DISTINCT FROM %(leader_id)s::uuid
            ORDER BY id
            LIMIT %(limit)s
        ) AS o
    ) AS o
    WHERE {fits}
)
UPDATE {table} AS o
SET leader_id = %(leader_id)s::uuid
FROM page
WHERE o.id = page.id
RETURNING {fields}

-- name: reset
-- Un-claim the rows of these lanes, up to the highest id that can be marked; and
-- what failed, although somebody may have mended its topic or key meanwhile.
UPDATE {table}
SET leader_id = NULL
WHERE
    leader_id = %(leader_id)s::uuid
    AND id <= %(highest)s
    AND (
        (kafka_topic, kafka_key) IN (
            SELECT lane.topic, lane.key
            FROM unnest(%(topics)s::text[], %(keys)s::text[]) AS lane (topic, key)
        )
        OR id = ANY(%(lows)s::bigint[])
    )

-- name: history
-- Which history of the database this is: a failover to a standby that lagged
-- behind begins a new timeline, on which ids are given again.
SELECT
    system_identifier
    || '/'
    || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
FROM pg_control_system()

-- name: page
-- Read the first rows of what was never shown, gaps and all after a position,
-- and of lanes that are to be shown again up to it. One statement is one
-- snapshot: in two, a gap's transaction could commit between them, and its
-- successor on the same key would show first.
SELECT {fields}
FROM (
    SELECT o.*, {bytes_before}
    FROM (
        (
            SELECT late.*
            FROM unnest(%(lows)s::bigint[], %(highs)s::bigint[]) AS gap (low, high)
            CROSS JOIN LATERAL (
                SELECT * FROM {table} AS o
                WHERE o.id BETWEEN gap.low AND gap.high AND {mine}
                ORDER BY o.id
                LIMIT %(limit)s
            ) AS late
        )
        UNION ALL
        (
            SELECT * FROM {table} AS o
            WHERE
                o.id BETWEEN %(low)s AND %(position)s
                AND (o.kafka_topic || chr(10) || o.kafka_key) = ANY(%(lanes)s::text[])
                AND {mine}
            ORDER BY o.id
            LIMIT %(limit)s
        )
        UNION ALL
        (
            SELECT * FROM {table} AS o
            WHERE o.id > %(position)s AND {mine}
            ORDER BY o.id
            LIMIT %(limit)s
        )
        ORDER BY id
        LIMIT %(limit)s
    ) AS o
) AS o
WHERE {fits}
ORDER BY o.id

-- name: page_after
-- The same when there are no gaps. Where it ends is found by ids and sizes alone:
-- whole rows in the window would cost a third more.
SELECT {fields}
FROM {table} AS o
WHERE
    o.id > %(position)s
    AND o.id <= (
        SELECT max(o.id)
        FROM (
            SELECT o.id, {bytes_before}
            FROM (
                SELECT * FROM {table} AS o
                WHERE o.id > %(position)s AND {mine}
                ORDER BY o.id
                LIMIT %(limit)s
            ) AS o
        ) AS o
        WHERE {fits}
    )
    AND {mine}
ORDER BY o.id

-- name: writers
-- Who may still write a row whose id is drawn: an INSERT takes this lock before
-- it draws an id, and keeps it to the end of its transaction. One that is
-- prepared has no process, and may have gone by another name.
SELECT virtualtransaction, pid IS NULL
FROM pg_locks
WHERE
    locktype = 'relation'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relation = %(table)s::regclass
    AND mode = 'RowExclusiveLock'
    AND granted

-- name: holders
-- Who keeps statements on these tables waiting: locks that conflict with reading or
-- writing rows, and requests for one, which are served in their order. A prepared
-- transaction has no process.
SELECT
    l.relation::regclass::text,
    l.pid,
    coalesce(a.application_name, ''),
    l.mode
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE
    l.locktype = 'relation'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.relation IN (
        to_regclass(%(table)s), to_regclass(%(parked)s), to_regclass(%(archive)s)
    )
    AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND l.mode IN (
        'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'
    )
ORDER BY l.granted DESC, l.pid
LIMIT 1

-- name: sweep
-- Read rows from the head that nobody knows of: what lies up to a position, and
-- what other clusters have left.
SELECT {fields}
FROM (
    SELECT o.*, {bytes_before}
    FROM (
        SELECT *
        FROM {table} AS o
        WHERE
            {left}
            AND o.id <> ALL(%(known)s::bigint[])
            AND (o.kafka_topic, o.kafka_key) NOT IN (
                SELECT lane.topic, lane.key
                FROM unnest(%(topics)s::text[], %(keys)s::text[]) AS lane (topic, key)
            )
        ORDER BY o.id
        LIMIT %(limit)s
    ) AS o
) AS o
WHERE {fits}
ORDER BY o.id

-- name: lanes
-- Read the first rows of some lanes, in one pass however many they are.
SELECT {fields}
FROM (
    SELECT o.*, {bytes_before}
    FROM (
        SELECT *
        FROM {table} AS o
        WHERE
            o.id BETWEEN %(low)s AND %(position)s
            AND (o.kafka_topic || chr(10) || o.kafka_key) = ANY(%(lanes)s::text[])
            AND {mine}
        ORDER BY o.id
        LIMIT %(limit)s
    ) AS o
) AS o
WHERE {fits}
ORDER BY o.id

-- name: purge
-- Delete rows that are in the log.
DELETE FROM {table} AS o
WHERE o.id = ANY(%(ids)s::bigint[]) AND {owned}

-- name: archive
-- Move rows that are in the log to the archive table.
WITH purged AS (
    DELETE FROM {table} AS o
    WHERE o.id = ANY(%(ids)s::bigint[]) AND {owned}
    RETURNING
        o.id, o.create_time, o.kafka_topic, o.kafka_key, o.kafka_value,
        {kafka_value_bytes} AS kafka_value_bytes,
        o.kafka_header_keys, o.kafka_header_values,
        {message_id} AS message_id,
        {kafka_partition} AS kafka_partition,
        {cluster_id} AS cluster_id,
        {attempts} AS attempts,
        {last_error} AS last_error
)
INSERT INTO {archive} (
    id, create_time, kafka_topic, kafka_key, kafka_value, kafka_value_bytes,
    kafka_header_keys, kafka_header_values, message_id, kafka_partition,
    cluster_id, attempts, last_error
)
SELECT * FROM purged

-- name: fail
-- Count an attempt and note the error.
UPDATE {table} AS o
SET
    attempts = least(o.attempts + 1, 32767),
    last_error = failure.error
FROM unnest(%(ids)s::bigint[], %(errors)s::text[]) AS failure (id, error)
WHERE o.id = failure.id AND {owned}

-- name: fail_unnoted
-- Count the rows of a table that has no place for an attempt or an error.
SELECT FROM {table} AS o
WHERE o.id = ANY(%(ids)s::bigint[]) AND {owned}

-- name: park
-- Move rows, with their error, to the parked table.
WITH parked AS (
    DELETE FROM {table} AS o
    USING unnest(%(ids)s::bigint[], %(errors)s::text[]) AS failure (id, error)
    WHERE o.id = failure.id AND {owned}
    RETURNING
        o.id, o.create_time, o.kafka_topic, o.kafka_key, o.kafka_value,
        {kafka_value_bytes} AS kafka_value_bytes,
        o.kafka_header_keys, o.kafka_header_values,
        {message_id} AS message_id,
        {kafka_partition} AS kafka_partition,
        {cluster_id} AS cluster_id,
        least({attempts} + 1, 32767) AS attempts,
        failure.error AS last_error
)
INSERT INTO {parked} (
    id, create_time, kafka_topic, kafka_key, kafka_value, kafka_value_bytes,
    kafka_header_keys, kafka_header_values, message_id, kafka_partition,
    cluster_id, attempts, last_error
)
SELECT * FROM parked

-- name: backlog
-- Count the rows up to a cap; age the row with the lowest id. Rows of other
-- clusters do not count.
SELECT
    count(*),
    (
        SELECT
            CASE
                WHEN isfinite(create_time)
                    THEN greatest(extract(epoch FROM now() - create_time), 0)
                ELSE 0
            END::float8
        FROM {table} AS o
        WHERE {mine}
        ORDER BY id
        LIMIT 1
    )
FROM (SELECT FROM {table} AS o WHERE {mine} LIMIT %(cap)s) AS counted

-- name: has_staging
-- Whether this outbox has tables of what is not to be sent yet.
SELECT
    to_regclass(%(staged)s) IS NOT NULL AND to_regclass(%(series)s) IS NOT NULL

-- name: agenda
-- In how many seconds, of a day at most, a staged message is due, the time of a
-- series is up, and a closed one may be forgotten; whether one is expiring. Each
-- date is bounded before anything is added to it or subtracted: one that plain SQL
-- has written may be infinite, or so far away that the result has no place.
SELECT
    extract(epoch FROM greatest(agenda.due, now()) - now())::float8,
    extract(epoch FROM greatest(agenda.overdue, now()) - now())::float8,
    extract(epoch FROM greatest(agenda.purgeable_at, now()) - now())::float8,
    EXISTS (SELECT FROM {series} WHERE state = 'expiring')
FROM (
    SELECT
        least(
            (SELECT min(not_before) FROM {staged}), now() + '1 day'
        ) AS due,
        least(
            (SELECT min(expires_at) FROM {series} WHERE state = 'open'),
            now() + '1 day'
        ) AS overdue,
        least(
            (SELECT min(closed_at) FROM {series} WHERE closed_at <= now())
            + make_interval(secs => %(retention)s::float8),
            now() + '1 day'
        ) AS purgeable_at
) AS agenda

-- name: release_due
-- Move messages whose time has come into the outbox. It needs no leader id: a
-- row is moved once, whoever does it.
WITH due AS MATERIALIZED (
    SELECT staged_id
    FROM {staged}
    WHERE not_before <= now()
    ORDER BY not_before, staged_id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
moved AS (
    DELETE FROM {staged} AS s
    USING due
    WHERE s.staged_id = due.staged_id
    RETURNING s.*
)
INSERT INTO {table} (
    kafka_topic, kafka_key, kafka_value, kafka_value_bytes, kafka_header_keys,
    kafka_header_values, message_id, kafka_partition, cluster_id
)
SELECT
    kafka_topic, kafka_key, kafka_value, kafka_value_bytes, kafka_header_keys,
    kafka_header_values, message_id, kafka_partition, cluster_id
FROM moved
ORDER BY not_before, staged_id

-- name: expire_series
-- Close series whose time is up, but for those that somebody is writing to.
WITH overdue AS MATERIALIZED (
    SELECT id
    FROM {series}
    WHERE state = 'open' AND expires_at <= now()
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE {series} AS s
SET state = 'expiring'
FROM overdue
WHERE s.id = overdue.id

-- name: clear_series
-- Park or delete messages of one series that is expiring; return it after the
-- last. Nobody has staged in it since an earlier statement closed it, so this
-- one sees all that there is. A parked message gets an id of the outbox, under
-- which a release puts it back.
WITH expiring AS MATERIALIZED (
    SELECT id, name, staged, on_timeout
    FROM {series}
    WHERE state = 'expiring'
    ORDER BY expires_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
),
page AS MATERIALIZED (
    SELECT s.staged_id
    FROM {staged} AS s
    WHERE s.series_id = (SELECT id FROM expiring)
    ORDER BY s.staged_id
    LIMIT %(limit)s
),
gone AS (
    DELETE FROM {staged} AS s
    USING page
    WHERE s.staged_id = page.staged_id
    RETURNING s.*
),
parked AS (
    INSERT INTO {parked} (
        id, create_time, kafka_topic, kafka_key, kafka_value, kafka_value_bytes,
        kafka_header_keys, kafka_header_values, message_id, kafka_partition,
        cluster_id, last_error
    )
    SELECT
        nextval(pg_get_serial_sequence(%(table)s, 'id')),
        gone.create_time, gone.kafka_topic, gone.kafka_key, gone.kafka_value,
        gone.kafka_value_bytes, gone.kafka_header_keys, gone.kafka_header_values,
        gone.message_id, gone.kafka_partition, gone.cluster_id,
        'SERIES_EXPIRED: ' || expiring.name
    FROM gone, expiring
    WHERE expiring.on_timeout = 'park'
    ORDER BY gone.staged_id
)
UPDATE {series} AS s
SET state = 'expired', closed_at = now()
FROM expiring
WHERE s.id = expiring.id AND (SELECT count(*) FROM page) < %(limit)s
RETURNING s.name, s.staged, s.on_timeout

-- name: forget_series
-- Delete closed series that nobody will ask for any more.
WITH old AS MATERIALIZED (
    SELECT id
    FROM {series}
    WHERE closed_at <= now() - make_interval(secs => %(retention)s::float8)
    ORDER BY closed_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {series} AS s
USING old
WHERE s.id = old.id

-- name: numbering
-- What makes the rows and the ids of this table one cluster's own.
SELECT
    (
        SELECT pg_get_expr(adbin, adrelid)
        FROM pg_attrdef
        JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
        WHERE adrelid = %(table)s::regclass AND attname = 'cluster_id'
    ),
    (
        SELECT pg_get_expr(adbin, adrelid)
        FROM pg_attrdef
        JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
        WHERE adrelid = to_regclass(%(staged)s) AND attname = 'cluster_id'
    ),
    seqrelid::regclass::text,
    seqincrement,
    coalesce(
        CASE
            WHEN has_sequence_privilege(seqrelid, 'SELECT, USAGE')
                THEN pg_sequence_last_value(seqrelid)
        END,
        seqstart
    )
FROM (SELECT pg_get_serial_sequence(%(table)s, 'id')::regclass AS drawn) AS ids
LEFT JOIN pg_sequence ON seqrelid = ids.drawn

-- name: has_identity
-- Whether this outbox has a table of its identity, and whether it has our columns:
-- goharvest's table has neither.
SELECT
    to_regclass(%(identity)s) IS NOT NULL,
    EXISTS (
        SELECT
        FROM pg_attribute
        WHERE
            attrelid = %(table)s::regclass
            AND attname = 'message_id'
            AND NOT attisdropped
    )

-- name: identity
-- Which outbox this is, and where it lies: a copy has the same identity in another
-- database. A database keeps its oid when it is renamed and on standbys.
SELECT
    i.outbox::text,
    c.system_identifier || '/' || d.oid
FROM {identity} AS i
CROSS JOIN pg_catalog.pg_control_system() AS c
JOIN pg_catalog.pg_database AS d ON d.datname = current_database()

-- name: new_identity
-- Make this outbox another one than that of which it is a copy.
INSERT INTO {identity} AS i (is_only)
VALUES (true)
ON CONFLICT (is_only) DO UPDATE
SET outbox = gen_random_uuid(), created_at = now()
RETURNING i.outbox::text
