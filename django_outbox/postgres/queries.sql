-- Every statement that the harvester sends, each under its name.
-- Braces are replaced by identifiers, and by expressions for columns that the
-- table lacks. Values are always parameters. A literal brace is doubled, and
-- there is no semicolon.
--
-- {fields} are the columns of a record. A write by a leader is limited to rows
-- that are {owned}: marked by its leader id, or, without marks, with the
-- message ids that it has read; so a former leader changes nothing. {these} are the
-- rows of a list that are {owned}.
--
-- A page ends where the values and headers of its rows reach a number of bytes:
-- {bytes_before} counts them before each row, and the first row always {fits}.

-- name: session
-- Set the time-outs, for the session or for its transaction only. A queue's
-- statistics describe the past ("empty", "all marked by this leader"), and would
-- make the planner read and sort the whole table; all statements here find their
-- rows by the primary key. Up to PostgreSQL 17 a sort that is off costs so much that
-- each execution would be compiled for a tenth of a second.
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
    set_config('idle_session_timeout', '0', %(is_local)s),
    set_config('enable_seqscan', 'off', %(is_local)s),
    set_config('enable_bitmapscan', 'off', %(is_local)s),
    set_config('enable_sort', 'off', %(is_local)s),
    set_config('jit', 'off', %(is_local)s)

-- name: backend
-- Which server process answers; if it is not the one of the connect, there is a pooler.
SELECT pg_backend_pid()

-- name: listen
-- Receive notifications of commits.
LISTEN {channel}

-- name: columns
-- Which columns the table has.
SELECT attname::text
FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped

-- name: ping
-- Read nothing from the table, to learn whether it can be read; and whether this
-- session can write: not on a standby, nor where transactions are read-only.
SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean
FROM (SELECT 1) AS here
LEFT JOIN (SELECT FROM {table} LIMIT 0) AS nothing ON true

-- name: mark
-- Claim rows from the head that this leader has not marked, even if another has.
-- The page takes no lock: the update waits for another's and takes the row over.
WITH page AS MATERIALIZED (
    SELECT o.id
    FROM (
        SELECT o.id, {bytes_before}
        FROM (
            SELECT *
            FROM {table}
            WHERE leader_id IS DISTINCT FROM %(leader_id)s::uuid AND {unpassed}
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

-- name: locked_keys
-- Keys of rows that the next mark would wait for, since another session has locked
-- them. This waits for no lock, and keeps none.
WITH page AS MATERIALIZED (
    SELECT id, kafka_topic, kafka_key
    FROM {table}
    WHERE
        leader_id IS DISTINCT FROM %(leader_id)s::uuid
        AND (kafka_topic, kafka_key) NOT IN (
            SELECT given.topic, given.key
            FROM unnest(%(topics)s::text[], %(keys)s::text[]) AS given (topic, key)
        )
    ORDER BY id
    LIMIT %(limit)s
),
free AS MATERIALIZED (
    SELECT id FROM {table} WHERE id IN (SELECT page.id FROM page)
    FOR UPDATE SKIP LOCKED
)
SELECT DISTINCT kafka_topic, kafka_key
FROM page
WHERE id NOT IN (SELECT free.id FROM free)

-- name: reset
-- Unmark the rows of these keys, up to the highest id that can be marked; and
-- the rows that failed, even if their topic or key was corrected meanwhile.
UPDATE {table}
SET leader_id = NULL
WHERE
    leader_id = %(leader_id)s::uuid
    AND id <= %(highest)s
    AND (
        (kafka_topic, kafka_key) IN (
            SELECT given.topic, given.key
            FROM unnest(%(topics)s::text[], %(keys)s::text[]) AS given (topic, key)
        )
        OR id = ANY(%(lows)s::bigint[])
    )

-- name: timeline
-- The timeline of the database: a failover to a standby that lagged behind
-- begins a new one, on which ids are drawn again.
SELECT
    system_identifier
    || '/'
    || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
FROM pg_control_system()

-- name: page
-- Read the first rows that were not read yet, in gaps and after a position,
-- and those of keys that are to be read again up to it. One statement is one
-- snapshot: between two, a gap's transaction could commit, and its successor on
-- the same key would be read first.
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
                AND (o.kafka_topic || chr(10) || o.kafka_key) = ANY(%(ordering_keys)s::text[])
                AND {mine}
            ORDER BY o.id
            LIMIT %(limit)s
        )
        UNION ALL
        (
            SELECT * FROM {table} AS o
            WHERE o.id > %(position)s AND {seen} AND {mine}
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
-- The same when there are no gaps. Its end is found by ids and sizes only:
-- whole rows in the window would cost a third more. Mostly all rows fit: a sum tells,
-- which costs less than the window, and the server computes that one only when needed.
SELECT {fields}
FROM {table} AS o
WHERE
    o.id > %(position)s
    AND o.id <= (
        SELECT
            CASE
                WHEN sum({bytes}) < %(page_bytes)s THEN max(o.id)
                WHEN max(o.id) IS NOT NULL THEN (
                    SELECT max(o.id)
                    FROM (
                        SELECT o.id, {bytes_before}
                        FROM (
                            SELECT * FROM {table} AS o
                            WHERE o.id > %(position)s AND {seen} AND {mine}
                            ORDER BY o.id
                            LIMIT %(limit)s
                        ) AS o
                    ) AS o
                    WHERE {fits}
                )
            END
        FROM (
            SELECT * FROM {table} AS o
            WHERE o.id > %(position)s AND {seen} AND {mine}
            ORDER BY o.id
            LIMIT %(limit)s
        ) AS o
    )
    AND {mine}
ORDER BY o.id

-- name: others
-- Look at the next rows: the last id, the ids that are other shards', how many are own.
SELECT
    max(next.id),
    string_agg(next.id::text, ',' ORDER BY next.id) FILTER (WHERE NOT next.is_mine),
    count(*) FILTER (WHERE next.is_mine)
FROM (
    SELECT o.id, {mine} AS is_mine
    FROM {table} AS o
    WHERE o.id > %(position)s
    ORDER BY o.id
    LIMIT %(limit)s
) AS next

-- name: rows
-- Read some rows of a page again, where one of them has made the page fail.
SELECT {fields}
FROM {table} AS o
WHERE o.id = ANY(%(ids)s::bigint[])
ORDER BY o.id

-- name: row_key
-- Read only what tells which message a row is, and whose: of which key and cluster.
SELECT
    o.kafka_topic,
    o.kafka_key,
    {message_id}::text,
    {created_at}::text,
    {cluster_id},
    {attempts}
FROM {table} AS o
WHERE o.id = %(id)s

-- name: row_key_escaped
-- The same where topic or key are not valid text.
SELECT
    encode(convert_to(o.kafka_topic, 'SQL_ASCII'), 'escape'),
    encode(convert_to(o.kafka_key, 'SQL_ASCII'), 'escape'),
    {message_id}::text,
    {created_at}::text,
    {cluster_id},
    {attempts}
FROM {table} AS o
WHERE o.id = %(id)s

-- name: writers
-- Transactions that may still commit a row whose id is drawn: an INSERT takes
-- this lock before it draws an id, and keeps it to the end of its transaction. A
-- prepared transaction has no process, and may have had another name before.
SELECT virtualtransaction, pid IS NULL
FROM pg_locks
WHERE
    locktype = 'relation'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relation = %(table)s::regclass
    AND mode = 'RowExclusiveLock'
    AND granted

-- name: holders
-- Which sessions block statements on these tables: locks that conflict with reading
-- or writing rows, and requests for one, which are served in order. A prepared
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
-- Repair scan: read rows from the head up to a position that this leader does not
-- know, and rows of other clusters that may be taken over. The lists may be long, and
-- PostgreSQL hashes them for `= ANY` in all its versions: not for `<> ALL` in 14, nor
-- for `NOT IN` beyond work_mem.
SELECT {fields}
FROM (
    SELECT o.*, {bytes_before}
    FROM (
        SELECT *
        FROM {table} AS o
        WHERE
            {left}
            AND NOT CASE WHEN o.id = ANY(%(known)s::bigint[]) THEN true ELSE false END
            AND NOT CASE
                WHEN
                    (o.kafka_topic || chr(10) || o.kafka_key)
                    = ANY(%(passed_keys)s::text[])
                    THEN true
                ELSE false
            END
            AND o.kafka_topic <> ALL(%(passed_topics)s::text[])
        ORDER BY o.id
        LIMIT %(limit)s
    ) AS o
) AS o
WHERE {fits}
ORDER BY o.id

-- name: purge
-- Delete rows that Kafka has acknowledged.
DELETE FROM {table} AS o
WHERE {these}

-- name: kept
-- Which of these rows are still there: a trigger, a rule or a policy may keep rows
-- without an error.
SELECT o.id FROM {table} AS o
WHERE o.id = ANY(%(ids)s::bigint[]) AND {owned}

-- name: locked
-- Which of these rows another session has locked. This takes no lock for longer than
-- the statement, and waits for none.
WITH free AS MATERIALIZED (
    SELECT o.id FROM {table} AS o
    WHERE o.id = ANY(%(ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
)
SELECT o.id FROM {table} AS o
WHERE o.id = ANY(%(ids)s::bigint[]) AND o.id NOT IN (SELECT free.id FROM free)

-- name: archive
-- Move rows that Kafka has acknowledged to the archive table.
WITH purged AS (
    DELETE FROM {table} AS o
    WHERE {these}
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
-- Count an attempt and store the error.
UPDATE {table} AS o
SET
    attempts = least(greatest(o.attempts, 0) + 1, 32767),
    last_error = failure.error
FROM unnest(%(ids)s::bigint[], %(errors)s::text[]) AS failure (id, error)
WHERE o.id = failure.id AND {owned}

-- name: fail_unnoted
-- Count the rows of a table that has no columns for attempts and errors.
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
        least(greatest({attempts}, 0) + 1, 32767) AS attempts,
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

-- name: topics
-- Count the first rows, up to a cap, by topic. Returns the topics with the most rows,
-- and the sum over all topics.
SELECT kafka_topic, count(*), (sum(count(*)) OVER ())::bigint
FROM (
    SELECT o.kafka_topic FROM {table} AS o WHERE {mine} ORDER BY o.id LIMIT %(cap)s
) AS counted
GROUP BY kafka_topic
ORDER BY count(*) DESC, kafka_topic
LIMIT %(limit)s

-- name: writer_ages
-- How long the transactions that write to the table have been open, in seconds; a
-- prepared one, since it was prepared. NULL: this role may not see the other role's
-- session. A prepared transaction has no process, and its id is known by its lock.
SELECT
    l.virtualtransaction,
    extract(
        epoch FROM clock_timestamp() - CASE
            WHEN l.pid IS NOT NULL
                THEN a.xact_start
            ELSE (
                SELECT p.prepared
                FROM pg_locks AS own
                JOIN pg_prepared_xacts AS p ON p.transaction = own.transactionid
                WHERE
                    own.locktype = 'transactionid'
                    AND own.virtualtransaction = l.virtualtransaction
                LIMIT 1
            )
        END
    )::float8
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE
    l.locktype = 'relation'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.relation = %(table)s::regclass
    AND l.mode = 'RowExclusiveLock'
    AND l.granted

-- name: dead_tuples
-- Rows that are deleted or replaced, and wait for a vacuum: an estimate.
SELECT pg_stat_get_dead_tuples(%(table)s::regclass)

-- name: has_pauses
-- Whether there is a table of pauses, and whether this role may read it: goharvest's
-- outbox has none, and neither has one before `migrate`.
SELECT relation IS NOT NULL, coalesce(has_table_privilege(relation, 'SELECT'), false)
FROM (SELECT to_regclass(%(pauses)s)::oid AS relation) AS found

-- name: pauses
-- What is not sent for now: topic and key, empty and null for all.
SELECT kafka_topic, kafka_key FROM {pauses}

-- name: has_staging
-- Whether this outbox has tables of staged messages.
SELECT
    to_regclass(%(staged)s) IS NOT NULL AND to_regclass(%(series)s) IS NOT NULL

-- name: agenda
-- In how many seconds, at most a day, a staged message is due, a series expires,
-- and a closed series may be deleted; whether one is expiring. Each date is bounded
-- before arithmetic: plain SQL may have written one that is infinite, or so far
-- away that the result is out of range.
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
-- Move due messages into the outbox. It needs no leader id: a row is moved once,
-- by any process.
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
-- Close series that have expired, except those that a transaction is writing to.
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
-- last. No message was staged in it since an earlier statement closed it, so this
-- one sees all of them. A parked message gets an id of the outbox, under which a
-- release puts it back.
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
-- Delete closed series whose retention is over.
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
-- How the rows and the ids of this table are numbered by cluster.
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
-- Whether this outbox has an identity table, and whether it has our columns:
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
-- The identity of this outbox, and of its database and schema: a copy has the same
-- identity in another one. Both keep their oids when they are renamed, and on standbys.
SELECT
    i.outbox::text,
    c.system_identifier || '/' || d.oid || '/' || t.relnamespace
FROM {identity} AS i
CROSS JOIN pg_catalog.pg_control_system() AS c
JOIN pg_catalog.pg_database AS d ON d.datname = current_database()
JOIN pg_catalog.pg_class AS t ON t.oid = i.tableoid

-- name: new_identity
-- Give this outbox, a copy, an identity of its own.
INSERT INTO {identity} AS i (is_only)
VALUES (true)
ON CONFLICT (is_only) DO UPDATE
SET outbox = gen_random_uuid(), created_at = now()
RETURNING i.outbox::text

-- name: server_settings
-- What the server promises, and what this role may see.
SELECT
    pg_is_in_recovery(),
    current_setting('transaction_read_only')::boolean,
    current_setting('fsync')::boolean,
    current_setting('full_page_writes')::boolean,
    current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'),
    current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean,
    current_user::text,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')

-- name: loose_commits
-- For which roles of this database synchronous_commit has another value.
SELECT
    coalesce(r.rolname::text, ''),
    coalesce(d.datname::text, ''),
    split_part(entry, '=', 2)
FROM pg_db_role_setting AS s
CROSS JOIN LATERAL unnest(s.setconfig) AS entry
LEFT JOIN pg_roles AS r ON r.oid = s.setrole
LEFT JOIN pg_database AS d ON d.oid = s.setdatabase
WHERE
    (s.setdatabase = 0 OR d.datname = current_database())
    AND split_part(entry, '=', 1) = 'synchronous_commit'

-- name: table_health
-- Live and dead rows, and whether vacuum and the WAL cover the table.
SELECT
    c.relname::text,
    c.relpersistence = 'u',
    coalesce(s.n_live_tup, 0),
    coalesce(s.n_dead_tup, 0),
    pg_total_relation_size(c.oid),
    coalesce(
        (
            SELECT option_value::boolean
            FROM pg_options_to_table(c.reloptions)
            WHERE option_name = 'autovacuum_enabled'
        ),
        true
    ),
    extract(epoch FROM now() - greatest(s.last_vacuum, s.last_autovacuum))::float8
FROM unnest(%(tables)s::text[]) AS given (name)
JOIN pg_class AS c ON c.oid = to_regclass(given.name)
LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
ORDER BY c.relname

-- name: absent_tables
-- Which of these tables do not exist, by their numbers. Where not even the outbox is
-- seen, a right is missing.
SELECT given.number
FROM unnest(%(tables)s::text[]) WITH ORDINALITY AS given (name, number)
WHERE to_regclass(given.name) IS NULL AND to_regclass(%(table)s) IS NOT NULL
ORDER BY given.number

-- name: old_transactions
-- Sessions whose transaction keeps dead rows of this database from being removed.
-- A vacuum and its parallel workers keep none, although they have snapshots.
SELECT
    pid,
    coalesce(application_name, ''),
    coalesce(state, ''),
    extract(epoch FROM now() - xact_start)::float8
FROM pg_stat_activity
WHERE
    datname = current_database()
    AND pid <> pg_backend_pid()
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND coalesce(leader_pid, pid) NOT IN (
        SELECT running.pid FROM pg_stat_progress_vacuum AS running
    )
    AND xact_start < now() - make_interval(secs => %(age)s::float8)
ORDER BY xact_start
LIMIT 5

-- name: prepared_transactions
-- Prepared transactions, which no session ends.
SELECT gid, extract(epoch FROM now() - prepared)::float8
FROM pg_prepared_xacts
WHERE
    database = current_database()
    AND prepared < now() - make_interval(secs => %(age)s::float8)
ORDER BY prepared
LIMIT 5

-- name: replication_slots
-- What each slot keeps: dead rows, and WAL.
SELECT
    slot_name::text,
    active,
    coalesce(age(xmin), 0),
    CASE
        WHEN pg_is_in_recovery() THEN 0
        ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)
    END::float8,
    coalesce(wal_status, '')
FROM pg_replication_slots
ORDER BY slot_name

-- name: id_sequence
-- The sequence of the ids.
SELECT seqrelid::regclass::text, seqcache
FROM pg_sequence
WHERE seqrelid = pg_get_serial_sequence(%(table)s, 'id')::regclass

-- name: outbox_schema
-- The schema in which a session finds a table, and whether every role may use it.
SELECT n.nspname::text, has_schema_privilege('public', n.oid, 'USAGE')
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%(table)s)

-- name: missing_privileges
-- The numbers of those privileges that a role lacks. An object or a column that does
-- not exist needs none.
SELECT number
FROM unnest(
    %(kinds)s::text[], %(names)s::text[], %(columns)s::text[], %(privileges)s::text[]
) WITH ORDINALITY AS given (kind, name, col, privilege, number)
CROSS JOIN LATERAL (
    SELECT
        CASE given.kind
            WHEN 'schema'
                THEN (
                    SELECT relnamespace
                    FROM pg_class
                    WHERE oid = to_regclass(%(table)s)
                )
            WHEN 'function' THEN to_regproc(given.name)::oid
            WHEN 'ids' THEN pg_get_serial_sequence(%(table)s, 'id')::regclass::oid
            ELSE to_regclass(given.name)::oid
        END
) AS found (target)
WHERE
    found.target IS NOT NULL
    AND NOT CASE
        WHEN given.kind = 'schema'
            THEN has_schema_privilege(%(role)s, found.target, given.privilege)
        WHEN given.kind = 'function'
            THEN has_function_privilege(%(role)s, found.target, given.privilege)
        WHEN given.kind = 'ids'
            THEN has_sequence_privilege(%(role)s, found.target, given.privilege)
        WHEN given.col = ''
            THEN has_table_privilege(%(role)s, found.target, given.privilege)
        WHEN EXISTS (
            SELECT
            FROM pg_attribute
            WHERE attrelid = found.target AND attname = given.col AND NOT attisdropped
        )
            THEN has_column_privilege(
                %(role)s, found.target, given.col, given.privilege
            )
        ELSE true
    END
ORDER BY number

-- name: waiting_topics
-- For which topics the first rows are, and when the oldest of each was written.
SELECT
    o.kafka_topic,
    count(*),
    (
        min(extract(epoch FROM o.create_time)) FILTER (WHERE isfinite(o.create_time))
    )::float8
FROM (
    SELECT kafka_topic, create_time FROM {table} ORDER BY id LIMIT %(cap)s
) AS o
GROUP BY o.kafka_topic
ORDER BY o.kafka_topic
