//! Signals that a process must not lose, and must not end by, while it [executes](crate::execution) another program.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, ptr};

/// The signals that end or reload a service. Their default action ends the process.
const SIGNALS: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// The thread that [holds](Held) the signals, by the kernel's number.
static HOLDER: AtomicI32 = AtomicI32::new(0);

/// Only one thread may hold the signals.
static ONE_HOLDER: Mutex<()> = Mutex::new(());

/// [`SIGNALS`] wait in one thread, and in a program that this thread executes, until the program
/// [receives](receive) them. If another thread gets one meanwhile, it sends it to the thread that holds them.
pub(crate) struct Held {
    _one_holder: MutexGuard<'static, ()>,
    /// The mask of the thread before.
    before: libc::sigset_t,
    /// What the process did with each signal before.
    actions: [Option<libc::sigaction>; SIGNALS.len()],
}

impl Held {
    /// Lets the signals wait in this thread. Waits while another thread holds them.
    ///
    /// # Errors
    /// Those of `pthread_sigmask(3)`.
    pub(crate) fn hold() -> io::Result<Self> {
        let one_holder = ONE_HOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        let before = change_mask(libc::SIG_BLOCK, &signals())?;
        HOLDER.store(rustix::thread::gettid().as_raw_pid(), Ordering::SeqCst);
        // From here on, this thread does not run the handler, which would send the signal to it again and again.
        let actions = SIGNALS.map(send_on);
        Ok(Self {
            _one_holder: one_holder,
            before,
            actions,
        })
    }
}

impl Drop for Held {
    /// No program was executed: the process receives what it received before.
    fn drop(&mut self) {
        for (signal, action) in SIGNALS.into_iter().zip(&self.actions) {
            if let Some(action) = action {
                // SAFETY: sets the action that the kernel has returned for this signal.
                unsafe { libc::sigaction(signal, ptr::from_ref(action), ptr::null_mut()) };
            }
        }
        let _ = change_mask(libc::SIG_SETMASK, &self.before);
    }
}

/// Lets a thread that gets this signal send it to [`HOLDER`]. The action before.
fn send_on(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a zeroed action is a valid one, with an empty mask. The handler makes system calls only.
    let done = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = send_to_holder as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, ptr::from_ref(&action), before.as_mut_ptr())
    };
    // SAFETY: the function has succeeded, so it has written the action.
    (done == 0).then(|| unsafe { before.assume_init() })
}

/// The handler. After an end of the holder's thread, the signal has no effect.
extern "C" fn send_to_holder(signal: libc::c_int) {
    // SAFETY: neither call has a requirement, and both may be made in a handler. The error number is left as it was.
    unsafe {
        let number = *libc::__errno_location();
        let process = libc::getpid();
        libc::syscall(
            libc::SYS_tgkill,
            process,
            HOLDER.load(Ordering::SeqCst),
            signal,
        );
        *libc::__errno_location() = number;
    }
}

/// SIGHUP, SIGINT and SIGTERM reach this thread from now on, also those that have waited since the former program of
/// this process. To be called when their handlers are installed.
///
/// # Errors
/// Those of `pthread_sigmask(3)`.
pub fn receive() -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK, &signals()).map(drop)
}

/// Sends SIGTERM to this thread. Where the signal waits, the next program of the process receives it.
///
/// # Errors
/// Those of `raise(3)`.
pub fn end() -> io::Result<()> {
    // SAFETY: has no requirement. The signal exists.
    match unsafe { libc::raise(libc::SIGTERM) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The set of [`SIGNALS`].
fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the set. `sigaddset` changes an initialized set; the signals exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Changes the mask of this thread. The mask before.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both pointers lead to sets that live during the call. The function writes the second one if it succeeds.
    match unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), before.as_mut_ptr()) } {
        // SAFETY: the function has succeeded.
        0 => Ok(unsafe { before.assume_init() }),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whether the signals are blocked in this thread.
    pub fn are_held() -> bool {
        let mut nothing = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initializes the set.
        let nothing = unsafe {
            libc::sigemptyset(nothing.as_mut_ptr());
            nothing.assume_init()
        };
        let mask = change_mask(libc::SIG_BLOCK, &nothing).unwrap();
        // SAFETY: the set is initialized.
        SIGNALS.map(|signal| unsafe { libc::sigismember(&mask, signal) }) == [1; 3]
    }

    /// Whether SIGPIPE is ignored.
    pub fn broken_pipes_are_ignored() -> bool {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: queries the present action, which the call writes if it succeeds.
        let action = unsafe {
            assert_eq!(
                libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()),
                0
            );
            action.assume_init()
        };
        action.sa_sigaction == libc::SIG_IGN
    }

    #[test]
    fn signals_are_held_until_they_are_received() {
        let held = Held::hold().unwrap();
        assert!(are_held());
        drop(held);
        assert!(!are_held());
        let _held = Held::hold().unwrap();
        receive().unwrap();
        assert!(!are_held());
    }

    /// The number of a signal that waits in this thread, which does not wait any longer.
    fn take_waiting() -> libc::c_int {
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both pointers lead to values that live during the call; no information is written.
        unsafe { libc::sigtimedwait(&signals(), ptr::null_mut(), &no_time) }
    }

    /// The thread that holds the signals is not the main thread, as in any test.
    #[test]
    fn a_signal_that_another_thread_gets_waits_too() {
        let held = Held::hold().unwrap();
        for signal in SIGNALS {
            let other = std::thread::spawn(move || {
                receive().unwrap();
                // SAFETY: has no requirement. The signal exists.
                unsafe { libc::raise(signal) }
            });
            assert_eq!(other.join().unwrap(), 0);
            assert_eq!(take_waiting(), signal);
        }
        assert_eq!(take_waiting(), -1);
        drop(held);
    }
}
