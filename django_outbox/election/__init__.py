"""
Fast NELI: one leader, elected through Kafka's own group protocol.

NELI is *non-exclusive process leader election* (github.com/obsidiandynamics/
NELI): the process that is assigned the leader partition of a consumer group
leads, and proves it by reading its own heartbeats back from that partition. This
package knows neither Django nor a driver, and starts no thread: `ports.py` says
what it needs, and `tests/simulation` drives it through thousands of random
faults.


States
======

::

                 assigned                  first full proof
    FOLLOWER ─────────────▶ CANDIDATE ───────────────────────▶ LEADER
       ▲                     │     ▲                           │    │
       │   revoked, lost     │     └───────────────────────────┘    │
       ├─────────────────────┘        lease expired: LeaderFenced,  │
       │                              new nonce                     │
       └────────────────────────────────────────────────────────────┘
             revoked: barrier, LeaderRevoked · lost: LeaderFenced

===============  ============================================================
elector.py       the body of the loop: join, poll, tick, resign, leave
neli.py          the state machine: assignments, heartbeats that were read back
                 and accepted commits go in; heartbeats and commits come out
leadership.py    holds the current term for all threads; publishes its events
term.py          one leader id with its trust window
strangers.py     recognizes heartbeats of another outbox under the same names
solo.py          a group of one, for development without Kafka
settings.py      name, shard and timing of the process
ports.py         the group membership and its listener: what Kafka has to do
===============  ============================================================


A full proof
============

1. `send`       our heartbeat goes to the leader partition, acks=all, with this
                assignment's nonce and `sent_at` on our own monotonic clock.
2. `heard`      it is read back from the partition: writing and reading work.
3. `confirm`    its offset is committed to the group.
4. `confirmed`  the coordinator accepted the commit. Now the lease runs until
                `sent_at + HEARTBEAT_TIMEOUT`.

The first proof that is still in the future begins a term (LeaderAcquired);
each later one extends it. A lease is counted from the moment of *sending*, so
that no delay can lengthen it.

Reading back alone proves nothing about the group: Kafka does not check whether a
reader or a writer of a partition is a member, so a process that was evicted can
still write and read its own heartbeats. The commit is what the coordinator
checks: it accepts one only from a member of the current generation.


Why two terms never overlap
===========================

Let L's commit, sent at *c*, be accepted, and *s* be that heartbeat's sending
time: s <= c. The coordinator takes the partition from L in four ways only.

*L's session expires.* Accepting a commit restarts L's session, as a group
heartbeat does. So it does not expire before c + SESSION_TIMEOUT, which is more
than twice as far away as the lease's end, s + HEARTBEAT_TIMEOUT.

*A rebalance gives it to another.* cooperative-sticky leaves it with the member
that claims it, and moves it only after L has rejoined without the claim. L's
client does that after `revoked` has returned, and then L's term has ended.

*A rebalance ends without L.* The coordinator waits MAX_POLL_INTERVAL for a member
to rejoin. L's client hears of the rebalance by the answer to a group heartbeat and
rejoins at once. However often it has to connect again, it is `lost` at the latest
when it has heard no answer for SESSION_TIMEOUT; the loop, which commits, sees that
within HEARTBEAT_INTERVAL. So at c it has heard, not longer ago than both, that there
was no rebalance. That answer was under way for SESSION_TIMEOUT at most, after which
a request ends its connection. A rebalance that L has not joined at c therefore began
after c - 2 SESSION_TIMEOUT - HEARTBEAT_INTERVAL, and ends without L after
c + HEARTBEAT_TIMEOUT at the earliest, if MAX_POLL_INTERVAL is not below the sum.
`settings/rules.py` checks that. While L's thread sits in a callback that holds a
rejoin up, it sends no commit, and the same holds.

*L leaves.* It does so after the barrier, or when its thread has not polled for
MAX_POLL_INTERVAL, which is longer than any lease.

A coordinator that was replaced and has not noticed may still answer heartbeats,
but cannot accept a commit: that is a replicated write. After a failover the new
coordinator restarts all sessions.

Clocks need not agree: each process measures its own `sent_at` on CLOCK_BOOTTIME,
which cannot be set and which runs during suspend. Their rates may differ by a
factor of two, the margin between HEARTBEAT_TIMEOUT and SESSION_TIMEOUT.


What fails, and what follows
============================

=========================  ==================================================
heartbeat lost, refused    Sent again every 0.1 s until one is proven. After
                           HEARTBEAT_TIMEOUT without a proof a candidate goes
                           back to HEARTBEAT_INTERVAL.
no proof in time           The lease expires: the relay checks the clock itself
                           and stops; the next tick publishes LeaderFenced. A
                           new nonce voids all outstanding proofs.
process paused, resumed    Its first action finds the lease expired.
broker takes it back       `revoked`: the barrier drains while the broker
                           waits, then LeaderRevoked, then the answer. When the
                           lease is over first, LeaderFenced comes at once, and
                           the drain goes on: a successor may already lead.
group lost (`lost`)        LeaderFenced at once; nothing is drained.
no database                The relay resigns; the elector hands over as on a
                           stop, and joins again when the database answers.
owner proves nothing       After `candidate_timeout` it leaves the group, so
                           that another process gets a chance.
noise on the topic         Ignored: other nonces, and dates in the future.
=========================  ==================================================

Not covered: an operator who deletes the group or its topic while a process leads,
and a guest system whose CLOCK_BOOTTIME stands still while its host pauses it. Both
may cause two leaders for up to HEARTBEAT_TIMEOUT. The damage is bounded: the old
leader's writes touch only rows that it has read (with marks in the table: that it
has marked), and it purges only what Kafka has acknowledged; what it sends to Kafka
are duplicates.


Better than its ancestors
=========================

goneli renews the lease with *any* message on the partition, of any writer and any
age, from the moment of *receiving* it: a starved process that works through a
backlog of old heartbeats believes in a leadership that ended long ago. Here only a
process's own heartbeat of the current assignment counts, from when it was sent,
and only after the coordinator has accepted its commit. A joining process does not
disturb the leader (goneli's eager rebalance revokes it each time). And leaving
drains first, so that an orderly handover repeats nothing.
"""
