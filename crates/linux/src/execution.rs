//! Executes another program in this process (`execve(2)`). The process keeps its number and its children, and the
//! program inherits descriptors. A signal that comes meanwhile [waits](crate::signals) for the program.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::{CStr, CString, OsString, c_char};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use crate::capability;
use crate::signals::Held;

/// The environment variable with the numbers of the inherited descriptors, behind the number of the process.
const VARIABLE: &str = "MIDSPAN_DESCRIPTORS";
/// Most inherited descriptors.
const MOST: usize = 64;

/// Executes the program in this file, with these arguments; the first one is the program's name. The program keeps the
/// permitted capabilities of this thread, and [inherits](inherited) the descriptors. It has to
/// [receive](crate::signals::receive) signals. `may_execute` is called last, when signals wait: its error ends the
/// attempt. Returns only if the program is not executed.
pub fn execute(
    program: BorrowedFd<'_>,
    arguments: impl IntoIterator<Item = OsString>,
    descriptors: &[BorrowedFd<'_>],
    may_execute: impl FnOnce() -> io::Result<()>,
) -> io::Error {
    let numbers: Vec<String> = (descriptors.iter())
        .map(|descriptor| descriptor.as_raw_fd().to_string())
        .collect();
    let value = format!("{} {}", std::process::id(), numbers.join(" "));
    let keep = |flags| -> io::Result<()> {
        for descriptor in descriptors {
            fcntl_setfd(descriptor, flags)?;
        }
        Ok(())
    };
    let attempt = || -> io::Result<Infallible> {
        let program = CString::new(format!("/proc/self/fd/{}", program.as_raw_fd()))?;
        let arguments = Strings::new(arguments)?;
        let others = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
        let variables = others
            .chain([(VARIABLE.into(), value.into())])
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                name
            });
        let environment = Strings::new(variables)?;
        let _held = Held::hold()?;
        may_execute()?;
        keep(FdFlags::empty())?;
        Err(capability::pass_all_on(|| {
            execve(&program, &arguments, &environment)
        }))
    };
    let Err(error) = attempt();
    let _ = keep(FdFlags::CLOEXEC);
    error
}

/// Strings as `execve` takes them.
struct Strings {
    /// Pointers to the strings, and a null pointer.
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl Strings {
    fn new(strings: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let strings: Vec<CString> = (strings.into_iter())
            .map(|string| CString::new(string.into_vec()))
            .collect::<Result<_, _>>()?;
        let pointers = strings.iter().map(|string| string.as_ptr());
        Ok(Self {
            pointers: pointers.chain([ptr::null()]).collect(),
            _strings: strings,
        })
    }
}

/// The standard library's [`exec`](std::os::unix::process::CommandExt::exec) gives SIGPIPE its default action even if it
/// fails. The next write to a closed pipe would then end this process.
fn execve(program: &CStr, arguments: &Strings, environment: &Strings) -> io::Error {
    // SAFETY: the program is a string with its end, and both lists have pointers to such strings that live as long as
    // the lists do, and a null pointer at their end. The function returns only if it fails.
    unsafe {
        libc::execve(
            program.as_ptr(),
            arguments.pointers.as_ptr(),
            environment.pointers.as_ptr(),
        );
    }
    io::Error::last_os_error()
}

/// The descriptors that this process has from the program that it [executed](execute) before this one, in their order.
/// There are none if this is its first program, or in every call but the first.
///
/// # Errors
/// The list cannot be read, or a descriptor is not open.
pub fn inherited() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let Ok(value) = std::env::var(VARIABLE) else {
        return Ok(Vec::new());
    };
    let numbers = numbers(&value, std::process::id())?;
    numbers.into_iter().map(take).collect()
}

/// Whether another program of this process has left descriptors for this one.
#[must_use]
pub fn has_inherited() -> bool {
    let value = std::env::var(VARIABLE);
    value.is_ok_and(|value| {
        numbers(&value, std::process::id()).is_ok_and(|numbers| !numbers.is_empty())
    })
}

/// The numbers in the variable's value; none if another process has set it.
fn numbers(value: &str, process: u32) -> io::Result<Vec<RawFd>> {
    let wrong = || io::Error::new(ErrorKind::InvalidData, format!("{VARIABLE}={value:?}"));
    let mut words = value.split_whitespace();
    let of = words.next().and_then(|word| word.parse::<u32>().ok());
    if of.ok_or_else(wrong)? != process {
        return Ok(Vec::new());
    }
    let numbers: Vec<RawFd> = words
        .map(|word| word.parse().ok().filter(|number| *number > 2))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let different: BTreeSet<&RawFd> = numbers.iter().collect();
    match numbers.len() <= MOST && different.len() == numbers.len() {
        true => Ok(numbers),
        false => Err(wrong()),
    }
}

fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the number is only used to ask whether it is an open descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(borrowed)?;
    // SAFETY: the descriptor is open. The former program of this process has left it open for this function, whose
    // first call alone gets here, and no other value owns it: the standard library opens none by itself.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(descriptor.as_fd(), FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::tests::{are_held, broken_pipes_are_ignored};

    #[test]
    fn only_the_own_process_s_list_counts() {
        assert_eq!(numbers("7 3 4 12", 7).unwrap(), [3, 4, 12]);
        assert!(numbers("7", 7).unwrap().is_empty());
        assert!(numbers("8 3 4", 7).unwrap().is_empty());
        for wrong in ["", "x 3", "7 3 x", "7 3 3", "7 2", "7 -3"] {
            assert!(numbers(wrong, 7).is_err(), "{wrong}");
        }
        let many: Vec<String> = (3..200).map(|number: i32| number.to_string()).collect();
        assert!(numbers(&format!("7 {}", many.join(" ")), 7).is_err());
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let error = execute(file.as_fd(), ["name".into()], &[pipe.0.as_fd()], || {
            assert!(are_held());
            Ok(())
        });
        assert!(error.raw_os_error().is_some(), "{error}");
        assert_eq!(fcntl_getfd(&pipe.0).unwrap(), FdFlags::CLOEXEC);
        assert!(broken_pipes_are_ignored() && !are_held());
    }

    #[test]
    fn a_program_that_may_not_be_executed_is_an_error() {
        let program = std::fs::File::open("/bin/true").unwrap();
        let error = execute(program.as_fd(), ["true".into()], &[], || {
            Err(io::Error::other("the reason"))
        });
        assert_eq!(error.to_string(), "the reason");
        assert!(!are_held());
    }
}
