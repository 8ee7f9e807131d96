//! Ends the process where a test waits without end: whoever waits can't say so.
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// So often in a row, a second apart, nothing new was done. What is waited for takes microseconds; a machine
/// that is loaded, or sleeps, keeps the watchdog from looking, too.
const LOOKS_MAX: u32 = 60;

#[derive(Default)]
struct Seen {
    operations: AtomicU64,
    /// What the thread is doing, and how many operations it had done before.
    doing: Mutex<(String, u64)>,
}

/// Watches the thread that made it, until it goes.
pub struct Watchdog {
    seen: Arc<Seen>,
    _over: Sender<()>,
}

impl Watchdog {
    pub fn new() -> Self {
        let seen = Arc::new(Seen::default());
        let (over, is_over) = mpsc::channel();
        let (watched, who) = (Arc::clone(&seen), thread::current());
        thread::spawn(move || {
            let (mut before, mut looks) = (0, 0);
            while is_over.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let operations = watched.operations.load(SeqCst);
                looks = if operations == before { looks + 1 } else { 0 };
                before = operations;
                if looks == LOOKS_MAX {
                    give_up(who.name().unwrap_or("unknown"), &watched);
                }
            }
        });
        Self { seen, _over: over }
    }

    /// What the thread is about to do.
    pub fn now(&self, doing: String) {
        let operations = self.seen.operations.load(SeqCst);
        *self.seen.doing.lock().expect("nobody panics with it") = (doing, operations);
    }

    /// It has done an operation.
    pub fn went_on(&self) {
        self.seen.operations.fetch_add(1, SeqCst);
    }
}

fn give_up(who: &str, seen: &Seen) -> ! {
    let doing = seen.doing.lock().expect("nobody panics with it");
    // Not by eprintln!, which the test harness keeps for itself until the test is over.
    let _ = writeln!(
        std::io::stderr(),
        "FAILED: the thread {who} has waited for {LOOKS_MAX} s {}, after {} operations",
        doing.0,
        seen.operations.load(SeqCst) - doing.1
    );
    std::process::abort()
}
