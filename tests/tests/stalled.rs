//! A thread that stops for good, or a process that is killed, before any instruction of an operation: the
//! others never wait for it, and nothing that they rely on breaks. A watchdog ends the test where they do wait.
//!
//! A few rounds by default; `CALLGATE_ROUNDS=3000` for thousands (`make verify`).
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[allow(dead_code, reason = "each crowd needs a part of it")]
mod crowd;
mod stall;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crowd::Dice;
use stall::stepping::{self, End};
use stall::watchdog::Watchdog;
use stall::{Mapping, Scene};

#[derive(Default)]
struct Tally {
    stopped: u64,
    left_a_claim: u64,
}

/// Of one scene.
const STOPS: u64 = 10;

/// Runs so many rounds, in which an act is to be stopped before one of its instructions, and the others'
/// are counted at times; `round` says whether it was stopped and whether it left a claim.
fn rounds(seed: u64, round: impl Fn(&Scene<'_>, u64, bool) -> (bool, bool)) {
    stepping::begin();
    let rounds =
        std::env::var("CALLGATE_ROUNDS").map_or(60, |rounds| rounds.parse().expect("a number"));
    let (mut mapping, mut tally) = (Mapping::new(), Tally::default());
    let watchdog = Watchdog::new();
    let mut whole = 0;
    for n in 0..rounds {
        let mut dice = [0, 0].map(|_| Dice::new((seed << 32) | (n / STOPS)));
        if n % STOPS == 0 {
            let scene = Scene::new(mapping.gate(), &watchdog, &mut dice[0]);
            whole = stepping::counted(|| scene.act.run(&scene.gate)).1;
        }
        let scene = Scene::new(mapping.gate(), &watchdog, &mut dice[1]);
        let last = Dice::new((n << 32) | seed).below(whole);
        watchdog.now(format!("beside one that stopped before instruction {last}, in round {n}"));
        let (stopped, left_a_claim) = round(&scene, last, n % STOPS == 0);
        tally.stopped += u64::from(stopped);
        tally.left_a_claim += u64::from(left_a_claim);
    }
    println!("of {rounds}, {} were stopped, {} left a claim", tally.stopped, tally.left_a_claim);
    // Else this would be a test of nothing.
    assert!(tally.stopped * 10 > rounds * 9);
    assert!(tally.left_a_claim > 0 || rounds < 500);
}

#[test]
fn a_thread_that_stops_anywhere_keeps_nobody_waiting_and_may_come_late() {
    rounds(1, |scene, instructions, counts| {
        stepping::nobody_is_parked();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let victim = scope.spawn(|| {
                let act = || scene.act.run(&scene.gate);
                let (admitted, _) = stepping::stopped_after(instructions, End::Park, act);
                is_over.store(true, SeqCst);
                admitted
            });
            while !stepping::is_parked() && !is_over.load(SeqCst) {
                std::thread::yield_now();
            }
            let stopped = stepping::is_parked();
            // Whatever fails, the thread must go on, or the test would not end.
            let checked = catch_unwind(AssertUnwindSafe(|| scene.check_stopped(counts)));
            scene.watchdog.now("for one that was stopped and goes on".to_owned());
            stepping::resume();
            let admitted = victim.join().expect("it comes back");
            let (seen, left_a_claim) = checked.unwrap_or_else(|cause| resume_unwind(cause));
            scene.check_late(admitted, seen);
            (stopped, left_a_claim)
        })
    });
}

#[test]
fn a_process_that_is_killed_anywhere_leaves_nothing_locked() {
    rounds(2, |scene, instructions, counts| {
        // SAFETY: the child runs nothing but the act, which allocates nothing and takes no lock.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            stepping::stopped_after(instructions, End::Kill, || scene.act.run(&scene.gate));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for a child of this thread's own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        assert!(killed || libc::WIFEXITED(status));
        let (_, left_a_claim) = scene.check_stopped(counts);
        (killed, left_a_claim)
    });
}
