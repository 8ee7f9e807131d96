/* The table of core/src/table.rs: who takes slots, charges entries and gives them back, step by step.
 *
 * A slot is a state word (ph, gen, val) and a key word (ktag, kkey); the key word counts only while its
 * generation is the state's. val is the entry's tat where it is LIVE. Time counts in units of which a
 * token (T) is a few. pc names the NEXT access: every guarded command below is exactly one atomic access
 * to shared memory, plus local work. Memory is sequentially consistent here (weaker memory is loom's
 * part). A thread that stops for good is one that is never scheduled again, so every assertion covers a
 * stop at every point.
 *
 * What stands for what (pc: function in core/src/table.rs, access):
 *   SCAN KEY            find, glimpse -> entry_of: state, then key word, slots in any order; a JOIN is
 *                       helped only where none is LIVE (jj)
 *   HIT                 change -> swap; where it fails and the same entry is LIVE with another payload:
 *                       decided again at once (change), or looked for anew (replace, in line)
 *   PICK                pick -> survey -> state: any slot that may be taken; which of them is free here.
 *                       Code also reads the key word there (rest_of), only to know the limit by which the
 *                       payload is read
 *   RAISE               Horizons::raise
 *   CLAIM               insert: swap to CLAIMED of the next generation. Of a CLAIMED or JOIN: its age is
 *                       not modelled, it may be taken over at any moment, GRACE times
 *   KREAD KCAS          write_keyword
 *   ENTER               insert: swap from CLAIMED to JOIN
 *   CONF CKEY           confirm: scan of all other slots, in any order
 *   QUIT                confirm: this JOIN is emptied, and all begins anew
 *   KILL                confirm: a JOIN in a higher slot is emptied; where it turned LIVE meanwhile, QUIT
 *   READH PROMOTE       confirm: Horizons::past, then step on a fresh payload and swap to LIVE; KEEP: or
 *                       the step keeps it (a quota does at times), and the JOIN is emptied
 *   RLOOK RKEY RNOW RCAS  amend, for a refund: find LIVE, read the clock, swap
 *   Lower               amend_all: a change of the limit lowers a debt (Rate::clamp)
 *   Look                charge where a fresh payload would not change, and look: only find
 * Not here: wrap-around of generations, the bounds on passes and attempts, limits other than a rate.
 *
 * Size:    NS slots, BURST, T, TMAX (times are 0..TMAX), GRACE (takeovers of CLAIMED or JOIN),
 *          A, B, C = operations of three threads on key 1; D = of one thread on key 2;
 *          RA, RB = of two threads on key 1 that give back each admission
 * Time:    by default each operation passes ANY time, stale or ahead;
 *          CLOCK: that of a shared clock, or with SKEW=1 up to one ahead
 * More:    LOWER, LOOK: with the process of that name; LOWER by a payload that this very limit can't
 *          express only: CLAMP, which then must change nothing
 *          STRICT: a refund leaves at least what a bucket holds that nobody gave anything back to
 *          LOST: a refund finds its entry unless that was reclaimed (one RA)
 *          VERSION: payloads count their changes, so that none comes back
 * Wrong on purpose:
 *          NO_SCAN (of confirm) NO_KILL NO_GIVE_UP (a JOIN stays beside one that turned LIVE), GIVE_UP (also
 *          beside one that didn't), STORE (promotes whatever is there), ENTER_STORE (joins whatever is there),
 *          KEY_STORE (writes the key word whatever is there), NO_TAG (believes a key word of any generation),
 *          SAME_GEN (a claim keeps the generation), HIT_ANYGEN (decides again on whatever is LIVE there),
 *          REST_MISS (a key's own entry at rest counts for none), JOIN_STOPS (a JOIN hides the LIVE entry),
 *          NO_RAISE NO_READ RAISE_LATE READ_EARLY (the horizon), LEVEL (refunds go by the bucket's level),
 *          ROLLBACK (the clock of a refund is the charge's), CLAMP_EARLY (that of the walk is its beginning's) */
#ifndef NS
#define NS 2
#endif
#ifndef BURST
#define BURST 1
#endif
#ifndef T
#define T 1
#endif
#ifndef TMAX
#define TMAX 2
#endif
#ifndef GRACE
#define GRACE 0
#endif
#ifndef SKEW
#define SKEW 0
#endif
#ifdef CLAMP_EARLY
#define CLAMP
#endif
#ifdef CLAMP
#define LOWER
#endif
#define EMPTY 0
#define CLAIMED 1
#define JOIN 2
#define LIVE 3
#define MAX(a,b) ((a) > (b) -> (a) : (b))
#define MIN(a,b) ((a) < (b) -> (a) : (b))
#define ALL ((1 << NS) - 1)
#define GEN_MAX 100                   /* a livelock gets here */

byte ph[NS], gen[NS], val[NS];        /* state words */
byte ktag[NS], kkey[NS];              /* key words */
byte H = 0;                           /* the horizon */
byte grace = GRACE;                   /* takeovers left */
byte clk = 0;
byte own[NS];                         /* ghost: whose key a JOIN or LIVE slot holds */
byte g[3];                            /* ghost: by key, the tat of one bucket charged in sequence */
byte w[3];                            /* ghost: the same without what is given back */
#ifdef LOST
bool gone;                            /* ghost: key 1 lost its slot since RA's charge */
#endif
#ifdef LOOK
bool absent;                          /* ghost: key 1 had no LIVE at some time since Look's start */
#endif
#ifdef VERSION
byte ver[NS];                         /* of the payload */
#define SEEN(x) sr = ver[x]
#define BUMP(x) ver[x] = (ver[x] + 1) % 8
#define SAMEV(x) (ver[x] == sr)
#else
#define SEEN(x) skip
#define BUMP(x) skip
#define SAMEV(x) true
#endif

mtype = { START, SCAN, KEY, HIT, PICK, RAISE, CLAIM, KREAD, KCAS, ENTER,
          CONF, CKEY, QUIT, KILL, READH, PROMOTE, RSTART, RLOOK, RKEY, RNOW, RCAS };

/* --- one access each --- */
inline look(x)  { sp = ph[x]; sg = gen[x]; sv = val[x]; so = own[x]; SEEN(x) }
#ifdef NO_TAG
#define TAGOK(x) 1
#else
#define TAGOK(x) (ktag[x] == sg)
#endif
inline key(x)   {                     /* does the key word belong to what look() saw? */
  hit = (TAGOK(x) && kkey[x] == K);
  assert(!hit || so == K);            /* never takes another key's entry for its own */
#ifdef REST_MISS
  if :: sp == LIVE && sv <= n -> hit = 0 :: else fi
#endif
}
#define SAME(x) (ph[x] == sp && gen[x] == sg && val[x] == sv && SAMEV(x))
#ifdef SAME_GEN
#define NEXT_GEN(x) (x)
#else
#define NEXT_GEN(x) ((x) + 1)
#endif

/* --- local work --- */
inline any(x) {                       /* x = any slot that this pass has not met yet */
  x = 0;
  do :: x < NS-1 && (met >> (x+1)) != (ALL >> (x+1)) -> x++
     :: !(met & (1 << x)) -> break
     :: (met & (1 << x)) && (met >> (x+1)) == (ALL >> (x+1)) -> x = 0 od;
  met = met | (1 << x) }
inline unsee()  { sp = 0; sg = 0; sv = 0; so = 0; hit = 0 }
inline forget() { met = 0; jj = NS; jg = 0; i = 0; j = 0; mg = 0; np = 0; xt = 0; xk = 0; unsee() }
inline retry()  { forget(); pc = SCAN }
inline finish() { forget(); n = 0; end = 0; charged = 0; pc = START }
inline deny()   { assert(charged == 0); finish() }
inline next_scan() { unsee();
  if :: met != ALL -> i = 0; pc = SCAN
     :: else -> met = 0; i = 0;
        if :: jj < NS -> i = jj; mg = jg; jj = NS; jg = 0; to_conf()
           :: jj == NS -> pc = PICK fi fi }
inline to_conf() { unsee(); met = 1 << i;
#ifdef READ_EARLY
  np = MAX(n, H);
#endif
#ifdef NO_SCAN
  met = 0; pc = READH }
#else
  pc = CONF }
#endif
inline next_conf() { j = 0; unsee();
  if :: met == ALL -> met = 0; pc = READH :: else -> pc = CONF fi }
inline not_found() {                  /* a refund that met no LIVE entry of its key */
#ifdef LOST
  assert(gone);
#endif
  finish() }
inline next_look() { unsee();
  if :: met != ALL -> i = 0; pc = RLOOK :: else -> not_found() fi }
inline admit(st) {                    /* the linearization point of an admission */
  charged++;
  assert(charged == 1);               /* charged exactly once */
  assert(own[i] == K);                /* never in another key's slot */
  assert(g[K] <= st + (BURST-1)*T);   /* legal for one bucket charged in sequence */
  g[K] = MAX(g[K], st) + T;
  assert(g[K] == val[i]);             /* and the entry is that bucket */
  if :: !refunds -> w[K] = MAX(w[K], st) + T :: else fi;
#ifdef STRICT
  assert(w[K] <= val[i]);             /* no more was handed back than was taken */
#endif
  end = val[i];
#ifdef LOST
  if :: refunds -> gone = 0 :: else fi;
#endif
  if :: refunds -> stamp = n; forget(); n = 0; pc = RSTART :: else -> finish() fi }
inline only_live() {                  /* never two LIVE of one key */
  j = 0;
  do :: j < NS -> assert(j == i || ph[j] != LIVE || own[j] != K); j++ :: else -> break od }
inline cancel(x) { ph[x] = EMPTY; gen[x] = gen[x] + 1; val[x] = 0; own[x] = 0 }
#ifdef CLOCK
inline latch()  { n = clk; if :: SKEW -> n = clk + 1 :: skip fi }
#else
inline latch()  { n = 0; do :: n < TMAX -> n++ :: break od }
#endif

proctype Op(byte K; byte ops; bool refunds) {
  mtype pc = START;
  byte n, np, i, j;                   /* time, charge time, my slot, scanned slot */
  byte met;                           /* the slots that this scan has met, as bits */
  byte jj = NS, jg;                   /* the first JOIN that this scan has met */
  byte stamp;                         /* the time that was passed with my charge */
#ifdef VERSION
  byte sr;
#endif
  byte sp, sg, sv, so;                /* state as last seen (so: ghost) */
  byte mg, xt, xk, end, charged;      /* my gen, key word as seen, tat my charge left */
  bool hit;
  do
  :: atomic { pc == START && ops > 0 -> ops--; latch(); pc = SCAN }
  :: pc == START && ops == 0 -> break

  /* charge K's LIVE entry, or help K's JOIN */
  :: atomic { pc == SCAN -> any(i); look(i);
       if :: sp >= JOIN -> pc = KEY :: else -> next_scan() fi }
  :: d_step { pc == KEY -> key(i);
       if :: hit && sp == LIVE && sv > n + (BURST-1)*T -> deny()
          :: hit && sp == LIVE && sv <= n + (BURST-1)*T -> pc = HIT
          :: hit && sp == JOIN -> if :: jj == NS -> jj = i; jg = sg :: else fi; next_scan()
          :: else -> next_scan() fi }
  :: atomic { pc == HIT ->
       if :: SAME(i) -> assert(g[K] == val[i]); val[i] = MAX(sv, n) + T; BUMP(i); admit(n)
#ifdef HIT_ANYGEN
          :: ph[i] == LIVE && !SAME(i) -> sg = gen[i];
#else
          :: ph[i] == LIVE && gen[i] == sg && !SAME(i) ->          /* decide again */
#endif
             assert(own[i] == K);
             sv = val[i]; SEEN(i); if :: sv > n + (BURST-1)*T -> deny() :: else fi
          :: !SAME(i) -> retry() fi }                               /* or look for it anew */

  /* no match: take any slot that is vacant */
  :: atomic { pc == PICK ->
       do :: i < NS-1 -> i++ :: break od;
       look(i);
       if :: sp == EMPTY -> pc = CLAIM
          :: sp == LIVE && sv <= n ->
#if defined(NO_RAISE) || defined(RAISE_LATE)
             pc = CLAIM
#else
             pc = RAISE
#endif
          :: (sp == CLAIMED || sp == JOIN) && grace > 0 -> pc = CLAIM
          :: else -> deny() fi }                                    /* table full */
#ifdef RAISE_LATE
  :: d_step { pc == RAISE -> H = MAX(H, n); pc = KREAD }
#else
  :: d_step { pc == RAISE -> H = MAX(H, sv); pc = CLAIM }
#endif
  :: d_step { pc == CLAIM ->
       if :: SAME(i) ->
             if :: (sp == CLAIMED || sp == JOIN) && grace > 0 -> grace-- :: else fi;
#ifdef LOST
             if :: sp == LIVE && own[i] == 1 -> gone = 1 :: else fi;
#endif
#ifdef LOOK
             if :: sp == LIVE && own[i] == 1 -> absent = 1 :: else fi;
#endif
             mg = NEXT_GEN(sg); assert(mg < GEN_MAX);
             ph[i] = CLAIMED; gen[i] = mg; val[i] = 0; own[i] = 0;
             pc = KREAD;
#ifdef RAISE_LATE
             if :: sp == LIVE -> pc = RAISE :: else fi;
#endif
             unsee()
          :: else -> retry() fi }
  :: d_step { pc == KREAD -> xt = ktag[i]; xk = kkey[i];
#if defined(KEY_STORE) || defined(SAME_GEN)
       pc = KCAS }
#else
       if :: xt >= mg -> retry() :: else -> pc = KCAS fi }          /* taken over */
#endif
  :: d_step { pc == KCAS ->
       if :: ktag[i] == xt && kkey[i] == xk -> ktag[i] = mg; kkey[i] = K; pc = ENTER
          :: else -> pc = KREAD fi; xt = 0; xk = 0 }
  :: d_step { pc == ENTER ->
#ifdef ENTER_STORE
       if :: true -> gen[i] = mg; val[i] = 0;
#else
       if :: ph[i] == CLAIMED && gen[i] == mg ->
#endif
             ph[i] = JOIN; own[i] = K; to_conf()
          :: else -> retry() fi }

  /* confirm K's JOIN of gen mg in slot i: LIVE wins, then the lowest JOIN */
  :: atomic { pc == CONF -> any(j); look(j);
       if :: sp >= JOIN -> pc = CKEY :: else -> next_conf() fi }
  :: d_step { pc == CKEY -> key(j);
       if :: hit && (sp == LIVE || j < i) -> pc = QUIT
#ifdef NO_KILL
          :: else -> next_conf() fi }
#else
          :: hit && sp == JOIN && j > i -> pc = KILL
          :: else -> next_conf() fi }
#endif
  :: d_step { pc == QUIT ->
       if :: ph[i] == JOIN && gen[i] == mg -> cancel(i) :: else fi; retry() }
  :: d_step { pc == KILL ->
       if :: ph[j] == JOIN && gen[j] == sg -> cancel(j); next_conf()
#ifdef GIVE_UP
          :: else -> pc = QUIT fi }
#else
#ifndef NO_GIVE_UP
          :: ph[j] == LIVE && gen[j] == sg -> pc = QUIT
#endif
          :: else -> retry() fi }
#endif
  :: d_step { pc == READH ->
#ifdef NO_READ
       np = n;
#endif
#if !defined(NO_READ) && !defined(READ_EARLY)
       np = MAX(n, H);
#endif
       pc = PROMOTE }
  :: atomic { pc == PROMOTE ->
#ifdef KEEP
       if :: if :: ph[i] == JOIN && gen[i] == mg -> cancel(i) :: else fi; deny() :: true ->
#endif
#ifdef STORE
       if :: true ->
#else
       if :: ph[i] == JOIN && gen[i] == mg ->
#endif
             ph[i] = LIVE; gen[i] = mg; val[i] = np + T; only_live(); admit(np)
          :: else -> retry() fi
#ifdef KEEP
       fi
#endif
     }

  /* give back this operation's own charge */
  :: atomic { pc == RSTART ->
#ifdef LEVEL
       latch(); if :: end <= n -> finish() :: else -> pc = RLOOK fi }
#else
       pc = RLOOK }
#endif
  :: atomic { pc == RLOOK -> any(i); look(i);
       if :: sp == LIVE -> pc = RKEY
#ifdef JOIN_STOPS
          :: sp == JOIN -> pc = RKEY
#endif
          :: else -> next_look() fi }
#ifdef LEVEL
#define DECIDE if :: sv <= n -> finish() :: else -> pc = RCAS fi
#define REFUNDED MAX(n, sv - MIN(T, end - n))
#else
#define DECIDE pc = RNOW
#define BACK MIN(T, (stamp + T > n -> stamp + T - n : 0))
#define REFUNDED MIN(sv, MAX(n, (sv > BACK -> sv - BACK : 0)))
#endif
  :: d_step { pc == RKEY -> key(i);
       if :: hit && sp == JOIN -> not_found()
          :: hit && sp == LIVE -> DECIDE
          :: else -> next_look() fi }
  :: atomic { pc == RNOW ->
#ifdef ROLLBACK
       n = stamp;
#else
       latch();
#endif
       pc = RCAS }
  :: d_step { pc == RCAS ->
       if :: SAME(i) ->
             assert(own[i] == K && g[K] == val[i]);
             val[i] = REFUNDED; BUMP(i);
             g[K] = val[i];            /* the refund in sequence: same rule, same stamp */
#ifdef STRICT
             assert(val[i] >= w[K]);
#endif
             stamp = 0;
             finish()
          :: ph[i] == LIVE && gen[i] == sg && !SAME(i) ->
             assert(own[i] == K); sv = val[i]; SEEN(i); DECIDE
          :: else -> met = 0; i = 0; unsee(); pc = RLOOK fi }
  od
}

#ifdef LOWER
/* one entry of key 1, wherever it is when the walk comes by */
proctype Lower() {
  byte n, i, v, sp, sg, sv, so, sr; bool hit, done; byte K = 1;
  latch();
  atomic { do :: i < NS-1 -> i++ :: break od; look(i) }
  d_step { if :: sp == LIVE -> key(i) :: else fi; done = !hit }
  do
  :: done -> break
  :: !done ->
#ifdef CLAMP
#ifdef CLAMP_EARLY
     v = MIN(sv, n + BURST*T);
#else
     atomic { latch(); v = MIN(sv, n + BURST*T) }
#endif
     assert(v == sv);
#else
     atomic { v = n; do :: v < sv -> v++ :: break od };
#endif
     d_step {
       if :: v >= sv -> done = 1                                        /* Keep */
          :: v < sv && SAME(i) -> assert(own[i] == 1 && g[1] == val[i]);
             val[i] = v; BUMP(i); g[1] = v; done = 1
          :: v < sv && ph[i] == LIVE && gen[i] == sg && !SAME(i) -> sv = val[i]; SEEN(i)
          :: else -> done = 1 fi; v = 0 }
  od
}
#endif

#ifdef LOOK
/* an answer "no entry" is true of some instant between the first and the last access */
proctype Look() {
  byte n, i, met, sp, sg, sv, so, sr; bool hit; byte K = 1; byte x;
  d_step { absent = 1; x = 0;
    do :: x < NS -> if :: ph[x] == LIVE && own[x] == 1 -> absent = 0 :: else fi; x++ :: else -> break od;
    x = 0 }
  do
  :: met != ALL && !hit ->
     atomic { any(i); look(i) }
     d_step { if :: sp >= JOIN -> key(i) :: else fi;
       if :: hit && sp == JOIN ->
#ifdef JOIN_STOPS
             met = ALL;
#endif
             hit = 0
          :: else fi }
  :: met == ALL && !hit -> assert(absent); break
  :: hit -> break
  od
}
#endif

#ifdef CLOCK
proctype Clock() { do :: clk < TMAX -> clk++ :: clk == TMAX -> break od }
#endif

init { atomic {
#ifdef A
  run Op(1, A, 0);
#endif
#ifdef B
  run Op(1, B, 0);
#endif
#ifdef C
  run Op(1, C, 0);
#endif
#ifdef RA
  run Op(1, RA, 1);
#endif
#ifdef RB
  run Op(1, RB, 1);
#endif
#ifdef D
  run Op(2, D, 0);
#endif
#ifdef LOWER
  run Lower();
#endif
#ifdef LOOK
  run Look();
#endif
#ifdef CLOCK
  run Clock();
#endif
} }
