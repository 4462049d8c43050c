//! Executes another program in this process (`execve(2)`). The process keeps its number and its children, and the
//! program inherits descriptors.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

use crate::capability;

/// The environment variable with the numbers of the inherited descriptors, behind the number of the process.
const VARIABLE: &str = "MIDSPAN_DESCRIPTORS";
/// Most inherited descriptors.
const MOST: usize = 64;

/// Executes the program in this file, with these arguments; the first one is the program's name. The program keeps the
/// permitted capabilities of this thread, and [inherits](inherited) the descriptors. Returns only if it is not executed.
pub fn execute(
    program: BorrowedFd<'_>,
    arguments: impl IntoIterator<Item = OsString>,
    descriptors: &[BorrowedFd<'_>],
) -> io::Error {
    let mut arguments = arguments.into_iter();
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let numbers: Vec<String> = (descriptors.iter())
        .map(|descriptor| descriptor.as_raw_fd().to_string())
        .collect();
    let value = format!("{} {}", std::process::id(), numbers.join(" "));
    command.args(arguments).env(VARIABLE, value);
    let keep = |flags| -> io::Result<()> {
        for descriptor in descriptors {
            fcntl_setfd(descriptor, flags)?;
        }
        Ok(())
    };
    let error = match keep(FdFlags::empty()) {
        Ok(()) => capability::pass_all_on(|| command.exec()),
        Err(error) => error,
    };
    let _ = keep(FdFlags::CLOEXEC);
    error
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
        let error = execute(file.as_fd(), ["name".into()], &[pipe.0.as_fd()]);
        assert!(error.raw_os_error().is_some(), "{error}");
        assert_eq!(fcntl_getfd(&pipe.0).unwrap(), FdFlags::CLOEXEC);
    }
}
