/*
 * A takeover of the ledger relay: each record is seen once, in order.
 *
 * Two processes harvest one table, whose rows all have the same key. Each may stand
 * still between any two steps, and needs no lease here: what it does when it goes on
 * must be refused, or be right. Its two Kafka clients take turns. A request to commit
 * may take effect at any later time, and its answer may never come.
 *
 * Each BUG takes one rule away, and an assertion must find it.
 */

#define ROWS 3
#define TERMS 3
#define OPENINGS 4         /* of all processes together */

#define ALL ((1 << ROWS) - 1)

byte rows = ALL            /* a bit for each row that is in the table */
byte seen                  /* records that a reader of committed records has seen */
byte ledger                /* rows that its last committed record lists */

byte term = 1              /* the generation of the group */
byte leader                /* to whom it has given the partition */
byte opened                /* the highest term that has taken both clients over */
byte openings

/* The two transactional ids, as their coordinator knows them. */
mtype = { empty_, open_, committed_ }
byte epoch[2]
mtype state[2] = empty_
byte records[2]            /* of the transaction that is open */
byte listed[2]             /* by the ledger's record in it */
byte sender[2]             /* the term of who has begun it */

chan commits = [2] of { bit, byte }  /* requests under way: id, epoch */

inline LEAVE(which) {
    assert((which & ~seen) == 0);  /* Nothing is lost. */
    rows = rows & ~(which)
}

active proctype Group() {
    do
    :: d_step { term < TERMS -> term++; leader = 1 - leader }
    :: term == TERMS -> break
    od
}

active proctype Coordinator() {
    bit id
    byte its_epoch
    do
    :: atomic { commits?id, its_epoch ->
        if
        :: its_epoch == epoch[id] && state[id] == open_ ->
            assert((records[id] & seen) == 0);                /* once */
            assert(sender[id] >= opened);    /* nothing of a former leader */
            seen = seen | records[id];
            assert((seen & (seen + 1)) == 0);                  /* in order */
            ledger = listed[id];
            state[id] = committed_; records[id] = 0; listed[id] = 0; sender[id] = 0
        :: else
        fi;
        id = 0; its_epoch = 0 }
    od
}

/* Take one transactional id over: what is open is aborted. */
inline OPEN(which) {
    d_step {
        epoch[which]++;
        mine[which] = epoch[which];
        state[which] = empty_; records[which] = 0; listed[which] = 0;
        sender[which] = 0
    }
}

inline READ_LEDGER() {
    d_step { unpurged = ledger; done = ledger }
}

proctype Harvester(byte me) {
    byte my_term
    byte mine[2]           /* the epochs of its clients */
    bool proven[2]         /* the group has accepted the term in a transaction of it */
    byte done              /* rows that this run has sent */
    byte unpurged          /* of these, rows that the table may still have */
    byte page, batch
    bit id

stand_by:
    atomic { leader == me -> my_term = term }

open:
    atomic { openings < OPENINGS -> openings++; id = 0; batch = 0; page = 0 }
#ifdef BUG_THE_LEDGER_IS_READ_BEFORE_THE_OPENING
    READ_LEDGER();
#endif
    OPEN(0);
#ifdef BUG_ONE_CLIENT_IS_NOT_TAKEN_OVER
    mine[1] = epoch[1];
#else
    OPEN(1);
#endif
    opened = (my_term > opened -> my_term : opened)
    d_step { proven[0] = false; proven[1] = false }
#ifndef BUG_THE_LEDGER_IS_READ_BEFORE_THE_OPENING
    READ_LEDGER();
#endif
    d_step { LEAVE(unpurged); unpurged = 0 }

read:
    page = rows & ~done

send:
    if
    :: atomic { page && !batch ->
        batch = (page & 1 -> 1 : (page & 2 -> 2 : 4)) }
    :: atomic { page == 7 && !batch -> batch = 3 }  /* or two in one transaction */
    :: atomic { !page && !unpurged -> goto stand_by_again }
    :: atomic { unpurged -> LEAVE(unpurged); unpurged = 0; goto read }
    fi;

    /* The records and the ledger. */
    if
    :: d_step { epoch[id] == mine[id] && state[id] != open_ ->
        state[id] = open_;
        records[id] = batch; sender[id] = my_term;
#ifdef BUG_THE_LEDGER_LISTS_ONLY_THE_LAST_TRANSACTION
        listed[id] = batch
#else
        listed[id] = batch | unpurged
#endif
        }
    :: epoch[id] != mine[id] -> goto fenced
    fi;

    /* The first transaction of each client carries the term. */
#ifndef BUG_NO_TRANSACTION_CARRIES_THE_TERM
    if
    :: proven[id]
    :: d_step { !proven[id] && my_term == term && epoch[id] == mine[id] ->
        proven[id] = true }
    :: !proven[id] && (my_term != term || epoch[id] != mine[id]) -> goto fenced
    fi;
#endif

#ifdef BUG_ROWS_GO_BEFORE_THE_COMMIT
    d_step { LEAVE(batch) }
#endif
    commits!id, mine[id];
    if
    :: atomic { epoch[id] == mine[id] && state[id] == committed_ ->
        done = done | batch; unpurged = unpurged | batch;
        page = page & ~batch; batch = 0;
        id = 1 - id;
        goto send }
    :: epoch[id] != mine[id] -> goto fenced
    :: true ->  /* No answer: nobody knows. */
#ifdef BUG_NO_ANSWER_IS_TAKEN_FOR_A_COMMIT
        d_step { LEAVE(batch) }
#endif
        goto open
    fi;

fenced:
    if
    :: my_term == term -> goto open
    :: else
    fi;
stand_by_again:
    atomic { batch = 0; page = 0; done = 0; unpurged = 0 }
    goto stand_by
}

init { atomic { run Harvester(0); run Harvester(1) } }
