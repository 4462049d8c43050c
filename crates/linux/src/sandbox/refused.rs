//! System calls that the filter refuses: counted, and stored for the log.
//!
//! The filter sends SIGSYS for a call that is not on the list (`SECCOMP_RET_TRAP`). The signal
//! handler counts the call and makes it return `EPERM`. If the filter itself returned `EPERM`, a
//! call that is missing on the list would not be noticed.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// `SYS_SECCOMP` of <asm-generic/siginfo.h>: the signal comes from a filter.
const FROM_FILTER: libc::c_int = 1;
/// Most calls that are stored for the log; further ones are only counted.
const KEPT: usize = 32;

static COUNT: AtomicU64 = AtomicU64::new(0);
/// Numbers of calls, in the order of their first occurrence; −1: none yet.
static NUMBERS: [AtomicI64; KEPT] = [const { AtomicI64::new(-1) }; KEPT];
/// Their first three arguments.
static ARGUMENTS: [[AtomicU64; 3]; KEPT] = [const { [const { AtomicU64::new(0) }; 3] }; KEPT];
/// How many of these calls have been returned for the log.
static TOLD: AtomicUsize = AtomicUsize::new(0);

/// A system call that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedCall {
    /// Its number on this architecture (`ausyscall NUMBER` prints the name).
    pub number: i64,
    /// The first three arguments of the first such call.
    pub arguments: [u64; 3],
}

impl std::fmt::Display for RefusedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [first, second, third] = self.arguments;
        write!(
            f,
            "system call {} ({first:#x}, {second:#x}, {third:#x})",
            self.number
        )
    }
}

/// Number of system calls that were refused in this process.
#[must_use]
pub fn refused_calls() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// The next refused system call that has not been returned yet; each number once, at most 32
/// numbers. Only one thread may call this.
pub fn next_refused_call() -> Option<RefusedCall> {
    let place = TOLD.load(Ordering::Relaxed);
    let number = NUMBERS.get(place)?.load(Ordering::Acquire);
    if number < 0 {
        return None;
    }
    TOLD.store(place + 1, Ordering::Relaxed);
    let arguments = ARGUMENTS.get(place)?;
    Some(RefusedCall {
        number,
        arguments: [0, 1, 2].map(|at| arguments.get(at).map_or(0, |v| v.load(Ordering::Relaxed))),
    })
}

fn note(number: i64, arguments: [u64; 3]) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    for (kept, places) in NUMBERS.iter().zip(&ARGUMENTS) {
        match kept.compare_exchange(-1, number, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // If the handler has not stored the arguments yet, they are zero; the number is
                // what matters.
                for (place, argument) in places.iter().zip(arguments) {
                    place.store(argument, Ordering::Relaxed);
                }
                return;
            }
            Err(other) if other == number => return,
            Err(_) => {}
        }
    }
}

/// From now on, counts refused calls of all threads.
///
/// # Errors
/// Those of `sigaction(2)` and `sigprocmask(2)`.
pub(super) fn count_them() -> io::Result<()> {
    // SAFETY: `sigaction` and `sigset_t` are plain data of C, for which zeros are valid values.
    let (mut action, mut signals): (libc::sigaction, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = handle as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: both pointers are to values on this stack. `handle` has the signature for SA_SIGINFO,
    // and does only what a signal handler may do: it reads and writes atomic numbers and the
    // context that the kernel passes. If the signal were blocked, the kernel would kill the process
    // when the filter sends it. The parent process may have blocked it, so it is unblocked here.
    let result = unsafe {
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGSYS);
        match libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) {
            0 => libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut()),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Lets the refused call return `EPERM`.
extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers to both (SA_SIGINFO) that nothing else uses.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    if info.si_code != FROM_FILTER {
        return;
    }
    registers::refuse(context);
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use libc::{REG_RAX, REG_RDI, REG_RDX, REG_RSI, ucontext_t};

    /// The kernel has put the number back into the register in which the result is expected.
    pub fn refuse(context: &mut ucontext_t) {
        let registers = &mut context.uc_mcontext.gregs;
        let read = |name: libc::c_int| {
            let register = usize::try_from(name).ok().and_then(|at| registers.get(at));
            register.copied().unwrap_or_default()
        };
        let arguments = [REG_RDI, REG_RSI, REG_RDX].map(|name| read(name).cast_unsigned());
        super::note(read(REG_RAX), arguments);
        if let Some(result) = usize::try_from(REG_RAX)
            .ok()
            .and_then(|at| registers.get_mut(at))
        {
            *result = -i64::from(libc::EPERM);
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod registers {
    /// The number is in x8; x0 has the first argument, and gets the result.
    pub fn refuse(context: &mut libc::ucontext_t) {
        let [first, second, third, _, _, _, _, _, number, ..] = &mut context.uc_mcontext.regs;
        super::note((*number).cast_signed(), [*first, *second, *third]);
        *first = (-i64::from(libc::EPERM)).cast_unsigned();
    }
}
