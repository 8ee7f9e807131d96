"""Ways in which the table could be wrong: changes of its sources, and the tests that must find each.

Not here, since no test can tell them from what is there: the Acquire of a compare-and-swap of a state, whose
value an Acquire load has seen before, and that of the load itself where a fence follows before anything hangs
on it. Nor a generation that is kept where a slot is emptied: the next claim raises it.
"""

TABLE = "table.rs"
GLIMPSE = "table/glimpse.rs"
VACANCY = "table/vacancy.rs"

# name: ([(file, what is there, what stands there instead)], [tests])
FAULTS = {
    # Steps left out.
    "confirm looks nowhere": (
        [(TABLE, "for other in candidates(key) {", "for other in candidates(key).take(0) {")],
        ["two_inserts::of_one_token"]),
    "confirm cancels no other join": (
        [(TABLE, "if let Err(now) = self.swap(other, word, word.emptied()) {",
          "if let Err(now) = Ok::<(), Word>(()) {")],
        ["two_inserts::of_one_token"]),
    "a join stays beside one that was made live": (
        [(TABLE, "if now.phase() == Phase::Live && now.generation() == word.generation() {",
          "if now.phase() == Phase::Empty && now.generation() == word.generation() {")],
        ["two_inserts::of_one_token"]),
    "a join is made live whatever is there": (
        [(TABLE, "match self.swap(index, join, live) {", "match self.swap(index, self.state(index), live) {")],
        ["two_inserts::of_one_token"]),
    "a claim becomes a join whatever is there": (
        [(TABLE, "if self.swap(index, claim, join).is_err() {",
          "if self.swap(index, self.state(index), join).is_err() {")],
        ["reclaim::a_slow_claimer_and_who_takes_over"]),
    "a key word is written whatever is there": (
        [(TABLE, "if not_older(generation_of(old), claim.generation()) {", "if generation_of(old) > 1 << 23 {")],
        ["reclaim::a_slow_claimer_and_who_takes_over"]),
    "a key word is believed whatever its generation": (
        [(TABLE, "slot.keyword.load(Ordering::Relaxed) == word.keyword(key.tag))",
          "slot.keyword.load(Ordering::Relaxed) << 24 == key.tag << 24)")],
        ["reclaim::nobody_takes_anothers_payload_for_its_own"]),
    "a claim keeps the generation": (
        [(TABLE, "Word::new(Phase::Claimed, word.next_generation(), stamp)",
          "Word::new(Phase::Claimed, word.generation(), stamp)")],
        ["reclaim::a_charge_and_a_newcomer"]),
    "a step is taken again on another entry": (
        [(TABLE, "if now.phase() == Phase::Live && now.generation() == generation => {",
          "if now.phase() == Phase::Live => {")],
        ["reclaim::a_charge_follows_no_slot_to_another_entry"]),
    "a join hides the live entry": (
        [(TABLE, "Some(word) => joining = joining.or(Some((index, word))),",
          "Some(word) => return Some((index, word)),")],
        ["reclaim::a_refund_finds_its_entry_behind_a_join"]),
    "an entry that is not at rest loses its slot": (
        [(VACANCY, "Some(rest) => (rest.wait_ns(time), Some(rest)),", "Some(rest) => (0, Some(rest)),")],
        ["reclaim::a_refund_and_a_newcomer"]),
    "a claim is never taken over": (
        [(VACANCY, "(GRACE_NS.saturating_sub(age_ns), None)", "(GRACE_NS.saturating_sub(age_ns).max(1), None)")],
        ["stops::an_inserter_stops_beside_one_of_its_key"]),
    "a refund goes to a join": (
        [(TABLE, """                Some((index, word)) if word.phase() == Phase::Live => {
                    if let Pass::Done(done) = self.change(index, word, &mut step) {""",
          """                Some((index, word)) => {
                    if let Pass::Done(done) = self.change(index, word, &mut step) {""")],
        ["two_inserts::a_refund_beside_one_that_joins"]),
    # What was only glimpsed.
    "a refusal is taken from a glimpse": (
        [(GLIMPSE, "self.state(seen.index) == seen.word", "seen.index < self.slots.len()")],
        ["glimpses::nobody_is_refused_by_what_never_was"]),
    "a glimpse is charged whatever is there": (
        [(GLIMPSE, "self.swap(seen.index, seen.word, new).is_ok()",
          "self.swap(seen.index, self.state(seen.index), new).is_ok()")],
        ["glimpses::nothing_is_charged_to_what_never_was"]),
    # The horizon.
    "the horizon is not raised": (
        [(TABLE, "self.horizons.raise(rest);", "let _ = rest;")],
        ["reclaim::a_stale_time_starts_a_key_no_earlier_than_it_came_to_rest"]),
    "the horizon is not looked at": (
        [(TABLE, "match step(FRESH, self.horizons.past(time)) {", "match step(FRESH, time) {")],
        ["reclaim::a_stale_time_starts_a_key_no_earlier_than_it_came_to_rest"]),
    "the horizon is raised late": (
        [(TABLE, "self.horizons.raise(rest);", "let _ = rest;"),
         (TABLE, "let join = Word::new(Phase::Join, claim.generation(), stamp);",
          """let join = Word::new(Phase::Join, claim.generation(), stamp);
        if let Some(rest) = rest {
            self.horizons.raise(rest);
        }""")],
        ["reclaim::a_stale_time_starts_a_key_no_earlier_than_it_came_to_rest"]),
    "the horizon is read early": (
        [(TABLE, "        fence(Ordering::SeqCst);\n", "        let time = self.horizons.past(time);\n        fence(Ordering::SeqCst);\n"),
         (TABLE, "match step(FRESH, self.horizons.past(time)) {", "match step(FRESH, time) {")],
        ["reclaim::a_stale_time_starts_a_key_no_earlier_than_it_came_to_rest"]),
    # Orderings made weaker.
    "no fence before the scan": (
        [(TABLE, "        fence(Ordering::SeqCst);\n", "")],
        ["two_inserts::of_one_token"]),
    "the fence before the scan is AcqRel": (
        [(TABLE, "fence(Ordering::SeqCst);", "fence(Ordering::AcqRel);")],
        ["two_inserts::of_one_token"]),
    "no fence after the scan": (
        [(TABLE, "        fence(Ordering::Acquire);\n", "")],
        ["reclaim::a_stale_time_misses_no_entry_that_came_and_went"]),
    "the key word is written Relaxed": (
        [(TABLE, "slot.keyword.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);",
          "slot.keyword.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);")],
        ["reclaim::a_stale_time_starts_a_key_no_earlier_than_it_came_to_rest"]),
    "a state is changed without Release": (
        [(TABLE, ".compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)",
          ".compare_exchange(old.0, new.0, Ordering::Acquire, Ordering::Acquire)")],
        ["reclaim::a_stale_time_starts_a_key_no_earlier_than_it_came_to_rest"]),
}
