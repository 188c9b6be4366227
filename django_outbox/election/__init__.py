"""
Fast NELI: one leader, elected through Kafka's own group protocol.

NELI is *non-exclusive process leader election* (github.com/obsidiandynamics/
NELI): whoever is assigned the leader partition of a consumer group leads, and
knows it by reading its own heartbeats back from that partition. Nothing in this
package knows Django, a driver or a thread: `ports.py` names what it needs, and
`tests/unit/test_neli_histories.py` drives it through a thousand random faults.


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
neli.py          the state machine: what is heard and confirmed goes in,
                 heartbeats and confirmations come out
term.py          one leader id with its trust window
leadership.py    holds the present term for all threads; tells its events
elector.py       the body of the loop: join, poll, tick, resign, leave
solo.py          a group of one, for development without Kafka
===============  ============================================================


A full proof
============

1. `send`       our heartbeat goes to the leader partition, acks=all, with this
                assignment's nonce and `sent_at` on our own boot-time clock.
2. `heard`      it is read back from the partition: the way there and back works.
3. `confirm`    its offset is committed to the group.
4. `confirmed`  the coordinator accepted the commit. Now the lease runs until
                `sent_at + HEARTBEAT_TIMEOUT`.

The first proof that is still in the future begins a term (LeaderAcquired);
each later one extends it. A lease is counted from the moment of *sending*, so
that no delay on the way can stretch it.

Reading back alone proves nothing about the group: Kafka asks no reader and no
writer of a partition whether it is a member, so a process that was evicted goes
on writing and reading its own heartbeats as before. The commit is what the
coordinator checks: it accepts one only from a member of the present generation.


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
to rejoin. L's client hears of the rebalance by its next group heartbeat and
rejoins at once; answers on one connection keep their order, and a request without
an answer for SESSION_TIMEOUT ends the connection. So a rebalance that L has not
joined at c began after c - HEARTBEAT_INTERVAL - SESSION_TIMEOUT, and ends without
L after c + HEARTBEAT_TIMEOUT at the earliest, if MAX_POLL_INTERVAL is not below
the sum of the three. `settings/rules.py` checks that. While L's thread sits in a
callback that holds a rejoin up, it sends no commit, and the same holds.

*L leaves.* It does so after the barrier, or when nobody has polled for
MAX_POLL_INTERVAL, which is longer than any lease.

A coordinator that was deposed without knowing it may still answer heartbeats,
but cannot accept a commit: that is a replicated write. After a failover the new
coordinator starts all sessions afresh.

Clocks need not agree: each process measures its own `sent_at`, on CLOCK_BOOTTIME,
which nobody sets and which runs during suspend. They need to run alike within a
factor of two, the margin between HEARTBEAT_TIMEOUT and SESSION_TIMEOUT.


What fails, and what follows
============================

=========================  ==================================================
heartbeat lost, refused    Sent again every 0.1 s until one is proven.
no proof in time           The lease expires: the relay stops by its own look
                           at the clock; the next tick tells LeaderFenced. A
                           new nonce voids all proofs under way.
process paused, resumed    Whatever it does first finds the lease expired.
broker takes it back       `revoked`: the barrier drains while the broker
                           waits, then LeaderRevoked, then the answer. A drain
                           that outlasts the lease ends in LeaderFenced: a
                           successor cannot be ruled out any more.
group lost (`lost`)        LeaderFenced at once; nothing is drained.
no database                The relay resigns; the elector hands over as on a
                           stop, and joins again when the database answers.
owner proves nothing       After `candidate_timeout` it leaves the group, so
                           that another process gets a chance.
noise on the topic         Ignored: other nonces, and dates in the future.
=========================  ==================================================

Not covered: an operator who deletes the group or its topic under a leader, and
a guest system whose boot-time clock stands still while its host pauses it. Both
may make two leaders for up to HEARTBEAT_TIMEOUT. What a zombie can do then is
bounded elsewhere: its writes to the table carry its leader id and touch no row
that its successor has marked; what it sends to Kafka are duplicates.


Better than its ancestors
=========================

goneli renews the lease by *any* message on the partition, whoever wrote it and
whenever, at the moment of *receiving* it: a starved process that works through
a backlog of old heartbeats believes in a leadership long gone. Here only an own
heartbeat of this assignment counts, from when it was sent, and only with the
coordinator's word. A joining process does not disturb the leader (goneli's
eager rebalance revokes it each time). And leaving drains first, so that a
handover in good order repeats nothing.
"""
