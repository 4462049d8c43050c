//! Signals that a process must not lose, and must not end by, while it [executes](crate::execution) another program.

use std::mem::MaybeUninit;
use std::{io, ptr};

/// The signals that end or reload a service. Their default action ends the process.
const SIGNALS: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// [`SIGNALS`] wait in the main thread, and in a program that the main thread executes, until the program
/// [receives](receive) them. If another thread gets one meanwhile, it sends it to the main thread.
pub(crate) struct Held {
    /// The mask of the thread before.
    before: libc::sigset_t,
    /// What the process did with each signal before.
    actions: [Option<libc::sigaction>; SIGNALS.len()],
}

impl Held {
    /// Lets the signals wait. To be called by the main thread.
    ///
    /// # Errors
    /// Those of `pthread_sigmask(3)`.
    pub(crate) fn hold() -> io::Result<Self> {
        let before = change_mask(libc::SIG_BLOCK, &signals())?;
        // From here on, the main thread does not run the handler, which would send the signal to it again and again.
        let actions = SIGNALS.map(send_on);
        Ok(Self { before, actions })
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

/// Lets a thread that gets this signal send it to the main thread. The action before.
fn send_on(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a zeroed action is a valid one, with an empty mask. The handler makes system calls only.
    let done = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = send_to_main_thread as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, ptr::from_ref(&action), before.as_mut_ptr())
    };
    // SAFETY: the function has succeeded, so it has written the action.
    (done == 0).then(|| unsafe { before.assume_init() })
}

/// The handler. The main thread has the number of the process.
extern "C" fn send_to_main_thread(signal: libc::c_int) {
    // SAFETY: neither call has a requirement, and both may be made in a handler. The error number is left as it was.
    unsafe {
        let number = *libc::__errno_location();
        let process = libc::getpid();
        libc::syscall(libc::SYS_tgkill, process, process, signal);
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
}
