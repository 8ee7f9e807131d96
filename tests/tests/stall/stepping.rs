//! Stops a thread, or kills a process, before a chosen instruction: the processor traps after each one
//! while its trap flag is set.
use std::arch::asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// What becomes of a thread after its last instruction.
#[derive(Clone, Copy)]
pub enum End {
    /// It waits until [`resume`], and then goes on.
    Park,
    /// Its process is killed, by SIGKILL.
    Kill,
    /// It goes on, and nobody counts.
    GoOn,
}

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
    static LAST: Cell<u64> = const { Cell::new(0) };
    static END: Cell<End> = const { Cell::new(End::Park) };
}

static PARKED: AtomicBool = AtomicBool::new(false);
static RESUMED: AtomicBool = AtomicBool::new(false);

const TRAP_FLAG: i64 = 0x100;

/// Once in a process, before the others.
pub fn begin() {
    // SAFETY: all zero is a `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_step as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action is valid, and its handler does only what a handler may.
    let installed = unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
    assert_eq!(installed, 0);
}

/// Runs `work` until it has made so many instructions; and says how many it made, if it came back.
pub fn stopped_after<T>(instructions: u64, end: End, work: impl FnOnce() -> T) -> (T, u64) {
    DONE.set(0);
    LAST.set(instructions);
    END.set(end);
    // SAFETY: sets the trap flag, and touches nothing else.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    let made = work();
    // SAFETY: clears the trap flag, and touches nothing else.
    unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
    (made, DONE.get())
}

/// Runs `work` and counts its instructions, up to 200,000.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    stopped_after(200_000, End::GoOn, work)
}

/// Before a thread is started that may be parked.
pub fn nobody_is_parked() {
    PARKED.store(false, SeqCst);
    RESUMED.store(false, SeqCst);
}

pub fn is_parked() -> bool {
    PARKED.load(SeqCst)
}

pub fn resume() {
    RESUMED.store(true, SeqCst);
}

extern "C" fn on_step(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let done = DONE.get();
    if done < LAST.get() {
        DONE.set(done + 1);
        return;
    }
    match END.get() {
        End::Kill => {
            // SAFETY: asks only.
            let me = unsafe { libc::getpid() };
            // SAFETY: ends this very process.
            unsafe { libc::kill(me, libc::SIGKILL) };
        }
        End::Park => {
            PARKED.store(true, SeqCst);
            while !RESUMED.load(SeqCst) {
                // SAFETY: may be called in a handler.
                unsafe { libc::poll(ptr::null_mut(), 0, 1) };
            }
        }
        End::GoOn => {}
    }
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel hands a handler with SA_SIGINFO the context, which is its own.
    let flags = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_EFL as usize] };
    *flags &= !TRAP_FLAG;
}
