/*
 * A leader change while records are in flight: the default relay.
 *
 * Two processes harvest one table, whose rows all have the same key. A process may
 * stand still between any two steps, for as long as it takes; one that never goes on
 * has crashed. What it has sent may reach the log at any later time, or never. Time
 * passes in ticks, and the group of Kafka evicts a member that it has not heard for
 * SESSION_TIMEOUT.
 *
 * Each BUG takes one rule away, and an assertion must find it.
 */

#define ROWS 3
#define W 2
#define HEARTBEAT_TIMEOUT 1
#define SESSION_TIMEOUT 2
#define TERMS 2

#define NOBODY 2
#define BIT(id) (1 << ((id) - 1))
#define COUNT(set) (((set) & 1) + ((set) >> 1 & 1) + ((set) >> 2 & 1))

#ifdef BUG_HANDOVER_WITHOUT_DRAIN
#define IS_DRAINED true
#else
#define IS_DRAINED !(in_flight & rows)
#endif

byte rows = (1 << ROWS) - 1 /* a bit for each row that is in the table */
byte logged                /* the highest id in the log */
byte duplicates, terms, bad_ends
bool ended_well = true     /* the last term: all it had sent was settled */

byte owner = NOBODY        /* to whom the group has given the partition */
byte session               /* ticks until it evicts the owner */
bool leads[2]
byte lease[2]              /* ticks for which a process trusts itself */

inline LEAVE(which) {
    assert((which & ~((1 << logged) - 1)) == 0);  /* Nothing is lost. */
    rows = rows & ~(which)
}

mtype = { idle, sent, accepted }
mtype beat[2] = idle       /* the heartbeat under way */
byte age[2]                /* ticks since it was sent */

chan wire[2] = [W] of { byte }
byte acknowledged[2]       /* rows of which a process hears that they are in the log */

active proctype Time() {
    byte each
    do
    :: d_step {
        each = 0;
        do
        :: each < 2 ->
            if :: lease[each] > 0 -> lease[each]-- :: else fi;
            if
            :: beat[each] != idle && age[each] < HEARTBEAT_TIMEOUT -> age[each]++
            :: else
            fi;
            each++
        :: else -> break
        od;
        if
        :: owner != NOBODY ->
            session--;
            if :: session == 0 -> owner = NOBODY :: else fi
        :: else
        fi;
        each = 0
    }
    od
}

active proctype Group() {
    byte each
    do
    :: atomic { owner == NOBODY ->
        if :: owner = 0 :: terms > 0 -> owner = 1 fi;
        session = SESSION_TIMEOUT }
    :: atomic {
        if :: each = 0 :: each = 1 fi;
        beat[each] == sent ->
        if
        :: owner == each -> session = SESSION_TIMEOUT; beat[each] = accepted
        :: else -> beat[each] = idle; age[each] = 0
        fi;
        each = 0 }
    od
}

/* The broker takes the requests of one producer in their order. */
active proctype Broker() {
    byte each, id
    do
    :: atomic {
        if :: each = 0 :: each = 1 fi;
        nempty(wire[each]) ->
#ifdef BUG_REQUESTS_OVERTAKE
        if
        :: wire[each]?id
        :: len(wire[each]) == 2 -> wire[each]?id; wire[each]!id; wire[each]?id
        fi;
#else
        wire[each]?id;
#endif
        if
        :: id <= logged -> duplicates++; assert(duplicates <= W * bad_ends)
        :: else -> assert(id == logged + 1); logged = id
        fi;
        acknowledged[each] = acknowledged[each] | BIT(id);
        each = 0; id = 0 }
    od
}

proctype Harvester(byte me) {
    byte page              /* rows that were read and are not sent */
    byte in_flight            /* rows that were sent in this term */
    byte position          /* the highest id that this term has read */
    byte id
    bool drains

    do
    /* The election. */
    :: atomic { owner == me && beat[me] == idle -> beat[me] = sent }
    :: atomic { beat[me] == accepted && (leads[me] -> lease[me] > 0 : terms < TERMS) ->
        beat[me] = idle;
#ifdef BUG_LEASE_BEGINS_WITH_THE_ANSWER
        lease[me] = HEARTBEAT_TIMEOUT;
#else
        lease[me] = HEARTBEAT_TIMEOUT - age[me];
#endif
        age[me] = 0;
        if
        :: !leads[me] && lease[me] > 0 ->
            assert(!leads[1 - me] || lease[1 - me] == 0);
            leads[me] = true;
            terms++;
            bad_ends = bad_ends + !ended_well;
            ended_well = false;
#ifndef BUG_A_TERM_GOES_ON_WHERE_THE_LAST_ONE_ENDED
            position = 0;
#endif
            page = 0; in_flight = 0; drains = false
        :: else
        fi }
    :: atomic { leads[me] && lease[me] == 0 ->
        leads[me] = false;
        /* It closes its producer. */
        if
        :: do :: wire[me]?id :: empty(wire[me]) -> break od
        :: true
        fi;
        id = 0 }

    /* The relay. */
    :: d_step { leads[me] && !drains && page == 0 && rows >> position ->
        page = rows >> position << position;
        page = (page == 7 -> 3 : page);  /* two rows at most */
        position = (page & 4 -> 3 : (page & 2 -> 2 : 1)) }
    :: leads[me] && !drains && lease[me] > 0 && page && COUNT(in_flight & rows) < W ->
        /* Here it may stand still, and another process may lead when it goes on. */
        atomic { nfull(wire[me]) ->
            id = (page & 1 -> 1 : (page & 2 -> 2 : 3));
            page = page & ~BIT(id);
            in_flight = in_flight | BIT(id);
            wire[me]!id;
#ifdef BUG_ROWS_GO_WHEN_THEY_ARE_SENT
            LEAVE(BIT(id));
#endif
            id = 0 }
    :: d_step { acknowledged[me] -> LEAVE(acknowledged[me]); acknowledged[me] = 0 }

    /* An orderly handover. */
    :: atomic { leads[me] && !drains -> drains = true; page = 0 }
    :: atomic { drains && leads[me] && lease[me] > 0 && IS_DRAINED ->
        leads[me] = false; lease[me] = 0; drains = false; ended_well = true;
        if :: owner == me -> owner = NOBODY; session = 0 :: else fi;
        beat[me] = idle; age[me] = 0 }
    od
}

init { atomic { run Harvester(0); run Harvester(1) } }
