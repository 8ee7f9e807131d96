// Package peers holds callgate against golang.org/x/time/rate: the same random traffic through both, at
// given times, and each difference explained by exact arithmetic. It is tests only: go test ./...
// (ffi/go/build.sh must have run); go test -v tells how often each class was met.
//
// The traffic is seeded. Its rates are up to a token each nanosecond and beyond, its costs 0 to two more
// than the burst, its gaps often end just where a token is due or 1 ns beside, and one clock in two steps
// back now and then. Theirs is asked in the two ways that servers use: AllowN, which only admits or not,
// and ReserveN, whose DelayFrom is the wait and which is cancelled where there is one. A difference of
// waits leaves both as they are; where one admits and the other does not, both begin anew, so that every
// difference is the first of its history and none is explained by an earlier one.
//
// All that was found, in the words that the tests count them by:
//
//	class        whose   what differs, and the exact bound that the test holds it to
//	rounded up   ours    The interval of a token is rounded up to whole ticks of 2^-32 ns. A call that is k tokens
//	                     after the bucket was full is admitted less than k ticks later than it might be: 1 ns at
//	                     most while k < 2^32, since waits are whole nanoseconds. At a time before that of an earlier
//	                     charge it may be admitted too early, by no more ticks than the burst is.
//	as of then   ours    A call at a time before that of the latest charge is decided as of its own time: what came
//	                     back since does not count. Theirs gives out what there was at the later time. At most what
//	                     comes back in the time that the clock is behind.
//	twice        theirs  Where the clock steps back, theirs takes the earlier time for the last (by a cancelled
//	                     reservation also where it refuses), so that the time until the clock has caught up fills
//	                     the bucket twice: more is admitted than was configured. At most what comes back in the time
//	                     by which the clock went back, all steps together. Never less than ours.
//	cut          theirs  Waits are cut to whole nanoseconds: a call that is less than 1 ns early is admitted, and a
//	                     wait is told up to 1 ns too short. Ours is rounded up.
//	float        theirs  The rate, the tokens and the wait are float64: a call may be admitted too early or refused
//	                     too late by their error, which is added up, operation by operation, in exact arithmetic.
//
// Not different: a cost above the burst passes neither, at any time, and charges nothing; a cost of 0
// passes both (while the clock goes forward); a cost that is refused charges nothing.
package peers
