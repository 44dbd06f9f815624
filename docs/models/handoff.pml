/* SPDX-License-Identifier: Apache-2.0
 *
 * How a partition of a managed group goes from one consumer to another: the rules of broker/coordinator, for a few clients and
 * partitions, and all orders in which things can happen. README.md says what each part stands for, and how it is checked.
 *
 * Sets of partitions are bit masks. NONE is no client.
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef PARTITIONS
#define PARTITIONS 2
#endif
#ifndef PLANS
#define PLANS 2 /* how often the operator changes its mind */
#endif
#ifndef FAULTS
#define FAULTS 2 /* how many things go wrong */
#endif
#ifndef CONSUMERS
#define CONSUMERS 2 /* which clients speak KIP-848's protocol, a mask; the others are classic, and eager */
#endif

#define NONE CLIENTS
#define BIT(p) (1 << (p))
#define ALL (BIT(PARTITIONS) - 1)
#define SPEAKS848(c) ((CONSUMERS >> (c)) & 1)

/* What clients ask, and what they are told. */
mtype = { join, sync, beat, ok, rejoin, unknown, stale };
#define nothing 0

/* What the operator has decided: whom each partition is for, and the generation of that. before is the decision before. */
byte plan[PARTITIONS], before[PARTITIONS];
byte generation = 1;

/* What the coordinator has stored: the plan that it knows, who is to read each partition, who holds it, and its members. */
byte wanted[PARTITIONS], target[PARTITIONS], holder[PARTITIONS] = NONE;
byte known = 1; /* the generation of its plan; it never falls */

typedef Member {
	bit in;        /* it is a member */
	bit synced;    /* it was told its share since it joined */
	byte epoch;    /* the generation that it was told last */
	byte previous; /* the one before, of a client of KIP-848 */
	byte told;     /* what it was told to read */
	byte fenced    /* what was taken from it, though it may still read it */
};
Member member[CLIENTS];

/* What it knows, and does not store: whose connection has closed, and whose pod is not alive by the kubelet's word. */
bit disconnected[CLIENTS], down[CLIENTS];

/* A client, as it is. */
typedef Client {
	bit dead;    /* its program does not run */
	bit cut;     /* it runs and cannot be reached */
	bit stuck;   /* it sends heartbeats and does nothing else */
	byte phase;  /* one of the phases below */
	byte epoch;  /* the generation that it knows */
	byte reads;  /* what it reads */
	bit whole;    /* of KIP-848: it wants to be told everything, since it missed an answer */
	bit waits    /* it waits for an answer */
};
Client client[CLIENTS];
#define idle 0
#define joined 1
#define reading 2

/* The one request of each client that is on its way, and the one answer. */
typedef Request { mtype what; byte epoch; byte owned; bit whole };
typedef Answer { mtype what; byte epoch; byte share; bit assigned };
Request request[CLIENTS];
Answer answer[CLIENTS];

/* Who was told last to read each partition: whose commits may count. */
byte granted[PARTITIONS] = NONE;

byte plans = PLANS, faults = FAULTS;

/* What a member holds, what of that is not its own, and what it would be told now. */
#define HOLDS(c, p) (holder[p] == (c))
#define IN(mask, p) (((mask) >> (p)) & 1)
#if PARTITIONS == 1
#define HELD(c) (HOLDS(c, 0))
#define MOVED(c) (HOLDS(c, 0) && target[0] != (c))
#define FREE(c, p) (target[p] == (c) && (HOLDS(c, p) || holder[p] == NONE))
#define SHARE(c) (FREE(c, 0))
#else
#define HELD(c) (HOLDS(c, 0) | (HOLDS(c, 1) << 1))
#define MOVED(c) ((HOLDS(c, 0) && target[0] != (c)) || (HOLDS(c, 1) && target[1] != (c)))
#ifdef NO_WAIT
#define FREE(c, p) (target[p] == (c))
#else
#define FREE(c, p) (target[p] == (c) && (HOLDS(c, p) || holder[p] == NONE))
#endif
#define SHARE(c) (FREE(c, 0) | (FREE(c, 1) << 1))
#endif

/* A client's belief that it reads a partition binds the coordinator, unless it was fenced, is no member, or has yet to be told that. */
#define COUNTS(c, p) (IN(client[c].reads, p) && member[c].in && !IN(member[c].fenced, p) && \
	(SPEAKS848(c) || (client[c].epoch == member[c].epoch && member[c].synced && client[c].phase == reading)))

/* Never two owners: whoever reads a partition, and does not have to hear that it may not, holds it. */
inline check() {
	who = 0;
	do
	:: who < CLIENTS ->
		part = 0;
		do
		:: part < PARTITIONS -> assert(!COUNTS(who, part) || holder[part] == who); part++
		:: else -> break
		od;
		who++
	:: else -> break
	od;
	who = 0; part = 0
}

/* Commits: those of its holder count for a partition, and no others. */
inline commit(c) {
	part = 0;
	do
	:: part < PARTITIONS ->
		if
#ifdef NO_FENCE
		:: IN(request[c].owned, part) -> assert(granted[part] == c)
#else
		:: IN(request[c].owned, part) && holder[part] == c -> assert(granted[part] == c)
#endif
		:: else
		fi;
		part++
	:: else -> break
	od;
	part = 0
}

/* drop ends a member's hold of partitions. */
inline drop(c, set) {
	part = 0;
	do
	:: part < PARTITIONS ->
		if
		:: IN(set, part) && holder[part] == c -> holder[part] = NONE
		:: else
		fi;
		part++
	:: else -> break
	od;
	part = 0
}

/* grant makes a member the holder of partitions. */
inline grant(c, set) {
	part = 0;
	do
	:: part < PARTITIONS ->
		if
		:: IN(set, part) -> holder[part] = c; granted[part] = c
		:: else
		fi;
		part++
	:: else -> break
	od;
	part = 0;
	member[c].fenced = member[c].fenced & ~(set)
}

/* divide says who is to read each partition: the client that the plan has it for, or, while that is no member, whoever was to read it, or holds it, and is alive. */
#define MAYLEND(c) ((c) != NONE && member[c].in && !down[c])
inline divide() {
	part = 0;
	do
	:: part < PARTITIONS ->
		if
#ifdef NO_RETURN
		:: MAYLEND(target[part]) && (holder[part] == NONE || holder[part] == target[part])
#endif
		:: member[wanted[part]].in -> target[part] = wanted[part]
		:: !member[wanted[part]].in && MAYLEND(target[part]) && (holder[part] == NONE || holder[part] == target[part])
		:: !member[wanted[part]].in && MAYLEND(holder[part]) && holder[part] != target[part] -> target[part] = holder[part]
		:: else -> target[part] = wanted[part]
		fi;
		part++
	:: else -> break
	od;
	part = 0
}

/* remove takes a member out of the group. */
inline remove(c) {
	drop(c, ALL);
	member[c].in = 0; member[c].synced = 0; member[c].told = 0; member[c].fenced = 0; member[c].epoch = 0; member[c].previous = 0;
	disconnected[c] = 0;
	divide()
}

/* tell answers a client, if the request is still its. */
inline tell(c, kind, number, set, assigns) {
	answer[c].what = kind; answer[c].epoch = number; answer[c].share = set; answer[c].assigned = assigns;
	request[c].what = nothing; request[c].epoch = 0; request[c].owned = 0; request[c].whole = 0
}

/* A JoinGroup, or the first heartbeat of KIP-848: the client reads nothing. */
inline enter(c) {
	drop(c, ALL);
	member[c].in = 1; member[c].synced = 0; member[c].told = 0; member[c].fenced = 0; member[c].previous = 0;
	if
	:: SPEAKS848(c) -> member[c].epoch = 0
	:: else -> member[c].epoch = known
	fi;
	divide()
}

/* A SyncGroup: what the member is told is what is free of its part. Asked again it gets the same answer, less what it lost meanwhile. */
inline fetch(c) {
	if
	:: !member[c].synced -> member[c].told = SHARE(c); member[c].synced = 1; grant(c, member[c].told)
	:: else
	fi;
	tell(c, ok, member[c].epoch, member[c].told & HELD(c), 1)
}

/* A Heartbeat: it tells to join again whoever would be told something else. */
inline hear(c) {
	if
	:: member[c].synced && ((member[c].told & ~HELD(c)) || member[c].told != SHARE(c)) -> tell(c, rejoin, 0, 0, 0)
	:: else -> tell(c, ok, member[c].epoch, 0, 0)
	fi
}

/* A heartbeat of KIP-848: first the member gives up what is no longer its own, and says so; then it gets what is free. */
inline acknowledge(c) {
	part = 0;
	do
	:: part < PARTITIONS ->
		if
		:: holder[part] == c && target[part] != c && !IN(member[c].told, part) && !IN(request[c].owned, part) -> holder[part] = NONE
		:: else
		fi;
		if
		:: IN(member[c].fenced, part) && !IN(member[c].told, part) && !IN(request[c].owned, part) -> member[c].fenced = member[c].fenced & ~BIT(part)
		:: else
		fi;
		part++
	:: else -> break
	od;
	part = 0
}

inline advance(c) {
	if
	:: !MOVED(c) && known > member[c].epoch -> member[c].previous = member[c].epoch; member[c].epoch = known
	:: else
	fi;
	if
	:: MOVED(c) -> mask = (SHARE(c)) & (HELD(c))
	:: else -> mask = SHARE(c)
	fi;
	if
	:: !member[c].synced || (member[c].told & ~HELD(c)) || member[c].told != mask || request[c].whole ->
		member[c].synced = 1; member[c].told = mask;
		grant(c, mask);
		tell(c, ok, member[c].epoch, mask, 1)
	:: else -> tell(c, ok, member[c].epoch, 0, 0)
	fi;
	mask = 0
}

/* The coordinator deals with one client's requests, and notices that it is gone. */
active [CLIENTS] proctype Serve() {
	byte me = _pid;
	byte who = 0, part = 0, mask = 0;
end:	do
	:: d_step { request[me].what != nothing && answer[me].what == nothing ->
		if
		:: request[me].what == beat && member[me].in && (request[me].epoch == member[me].epoch) -> commit(me)
		:: else
		fi;
		if
		:: !client[me].dead && !client[me].cut -> disconnected[me] = 0
		:: else
		fi;
		if
		:: request[me].what == join ->
			enter(me);
			if
			:: SPEAKS848(me) -> request[me].whole = 1; advance(me)
			:: else -> tell(me, ok, member[me].epoch, 0, 0)
			fi
		:: request[me].what != join && !member[me].in -> tell(me, unknown, 0, 0, 0)
		:: request[me].what == sync && member[me].in && request[me].epoch == member[me].epoch -> fetch(me)
		:: request[me].what == beat && member[me].in && SPEAKS848(me) && (request[me].epoch == member[me].epoch ||
			(request[me].epoch == member[me].previous && !(request[me].owned & ~HELD(me)))) -> acknowledge(me); advance(me)
		:: request[me].what == beat && member[me].in && !SPEAKS848(me) && request[me].epoch == member[me].epoch -> hear(me)
		:: else -> tell(me, stale, 0, 0, 0)
		fi;
		check() }
#ifndef NO_TIMEOUT
	:: d_step { member[me].in && (client[me].dead || client[me].cut) -> remove(me); check() } /* its session ends */
#endif
	:: d_step { member[me].in && disconnected[me] && down[me] -> remove(me); check() } /* two witnesses say that it is dead */
	od
}

/* The handoff timeout: what a member has not let go of is taken from it. */
active [PARTITIONS] proctype Timeout() {
	byte me = _pid - CLIENTS;
	byte who = 0, part = 0;
#ifndef NO_TIMEOUT
end:	do
	:: d_step { holder[me] != NONE && target[me] != holder[me] ->
		member[holder[me]].fenced = member[holder[me]].fenced | BIT(me);
		holder[me] = NONE;
		check() }
	od
#endif
}

/* The coordinator's broker sees what the operator has decided. */
active proctype Watch() {
	byte who = 0, part = 0;
end:	do
	:: d_step { known != generation || wanted[0] != plan[0] || wanted[PARTITIONS - 1] != plan[PARTITIONS - 1] ->
		part = 0;
		do
		:: part < PARTITIONS -> wanted[part] = plan[part]; part++
		:: else -> break
		od;
		known = generation;
		divide();
		check() }
	od
}

/* A client that behaves. */
active [CLIENTS] proctype Consume() {
	byte me = _pid - CLIENTS - PARTITIONS - 1;
	byte who = 0, part = 0;
end:	do
	/* It asks. An eager client lets go of everything before it joins. */
	:: d_step { !client[me].dead && !client[me].cut && !client[me].waits && request[me].what == nothing && answer[me].what == nothing ->
		if
		:: client[me].phase == idle ->
			client[me].reads = 0; client[me].epoch = 0;
			request[me].what = join
		:: client[me].phase == joined -> request[me].what = sync
		:: client[me].phase == reading -> request[me].what = beat
		fi;
		request[me].epoch = client[me].epoch; request[me].owned = client[me].reads; request[me].whole = client[me].whole;
		client[me].waits = 1;
		check() }
	/* It hears. */
	:: d_step { answer[me].what != nothing && client[me].waits && !client[me].dead && !client[me].cut ->
		client[me].waits = 0;
		if
		:: answer[me].what == ok && (client[me].phase == joined || answer[me].assigned) ->
			client[me].epoch = answer[me].epoch; client[me].reads = answer[me].share; client[me].phase = reading; client[me].whole = 0
		:: answer[me].what == ok && client[me].phase == idle -> client[me].epoch = answer[me].epoch; client[me].phase = joined
		:: answer[me].what == ok && client[me].phase == reading && !answer[me].assigned -> client[me].epoch = answer[me].epoch; client[me].whole = 0
		:: answer[me].what == rejoin && !client[me].stuck -> client[me].phase = idle
		:: answer[me].what == rejoin && client[me].stuck
		:: answer[me].what == unknown || answer[me].what == stale -> client[me].phase = idle; client[me].reads = 0; client[me].epoch = 0; client[me].whole = 0
		fi;
		answer[me].what = nothing; answer[me].epoch = 0; answer[me].share = 0; answer[me].assigned = 0;
		check() }
	/* Nobody waits for this answer any more. */
	:: d_step { answer[me].what != nothing && !client[me].waits ->
		answer[me].what = nothing; answer[me].epoch = 0; answer[me].share = 0; answer[me].assigned = 0 }
	od
}

/* give up: a client does not wait any longer for an answer, which is lost, or late. */
inline giveUp(c) {
	if
	:: client[c].waits && SPEAKS848(c) && client[c].phase == reading -> client[c].whole = 1
	:: else
	fi;
	client[c].waits = 0
}

/* What happens to all of them: the operator decides, and things go wrong, but not for ever. */
active proctype World() {
	byte c = 0, part = 0, who = 0;
end:	do
	:: atomic { plans > 0 ->
		plans--;
		generation++;
		part = 0;
		do
		:: part < PARTITIONS ->
			before[part] = plan[part];
			select(c : 0 .. CLIENTS - 1);
			plan[part] = c;
			part++
		:: else -> break
		od;
		part = 0; c = 0 }
	:: atomic { faults > 0 ->
		select(c : 0 .. CLIENTS - 1);
		faults--;
		if
		/* A program ends; its connection closes, and the kubelet may see it. */
		:: !client[c].dead ->
			client[c].reads = 0; client[c].phase = idle; client[c].epoch = 0; client[c].whole = 0; client[c].waits = 0; client[c].stuck = 0;
			client[c].dead = 1;
			if
			:: disconnected[c] = 1
			:: disconnected[c] = 1; down[c] = 1
			:: down[c] = 1
			:: skip
			fi
		/* It is cut off: what it waits for does not come. */
		:: !client[c].dead && !client[c].cut -> client[c].cut = 1; giveUp(c)
		/* It goes on for ever with what it has. */
		:: !client[c].dead && client[c].phase == reading -> client[c].stuck = 1
		/* Its connection closes, or its pod fails its probe, though it lives. */
		:: !client[c].dead && !disconnected[c] -> disconnected[c] = 1; giveUp(c)
		:: !client[c].dead && !down[c] -> down[c] = 1
		/* A request is lost, or a client does not wait for the answer. */
		:: client[c].waits && request[c].what != nothing -> giveUp(c); request[c].what = nothing; request[c].epoch = 0; request[c].owned = 0; request[c].whole = 0
		:: client[c].waits -> giveUp(c)
		/* The coordinator begins anew, with what it had stored, on a broker that may know an older plan. */
		:: true ->
			c = 0;
			do
			:: c < CLIENTS ->
				giveUp(c);
				request[c].what = nothing; request[c].epoch = 0; request[c].owned = 0; request[c].whole = 0;
				answer[c].what = nothing; answer[c].epoch = 0; answer[c].share = 0; answer[c].assigned = 0;
				disconnected[c] = 0;
				c++
			:: else -> break
			od;
			if
			:: part = 0;
				do
				:: part < PARTITIONS -> wanted[part] = before[part]; part++
				:: else -> break
				od;
				divide()
			:: skip
			fi;
#ifdef LOSE_HOLDERS
			part = 0;
			do
			:: part < PARTITIONS -> holder[part] = NONE; part++
			:: else -> break
			od;
			part = 0;
#endif
			d_step { check() }
		fi;
		c = 0 }
	:: generation > 0 /* nothing */
	/* What was wrong may end, or not: a program is started again, a network mends, a pod is ready again. */
	:: d_step { client[0].dead -> client[0].dead = 0; client[0].cut = 0; down[0] = 0 }
	:: d_step { client[1].dead -> client[1].dead = 0; client[1].cut = 0; down[1] = 0 }
	:: d_step { client[0].cut -> client[0].cut = 0 }
	:: d_step { client[1].cut -> client[1].cut = 0 }
	:: d_step { !client[0].dead && down[0] -> down[0] = 0 }
	:: d_step { !client[1].dead && down[1] -> down[1] = 0 }
#if CLIENTS > 2
	:: d_step { client[2].dead -> client[2].dead = 0; client[2].cut = 0; down[2] = 0 }
	:: d_step { client[2].cut -> client[2].cut = 0 }
	:: d_step { !client[2].dead && down[2] -> down[2] = 0 }
#endif
	od
}

/* In the end each partition is read by the client that it is for, if that can be. */
#define WELL(p) (client[plan[p]].dead || client[plan[p]].cut || client[plan[p]].stuck || \
	(holder[p] == plan[p] && IN(client[plan[p]].reads, p)))
#if PARTITIONS == 1
ltl owned { <>[] WELL(0) }
#else
ltl owned { <>[] (WELL(0) && WELL(1)) }
#endif
