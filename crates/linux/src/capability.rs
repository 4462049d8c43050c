//! Capabilities (capabilities(7)): which ones this process holds, and giving the others up.
//!
//! The kernel stores capabilities per thread, so give them up before the first thread is started.

use std::io;

use caps::{CapSet, CapsHashSet};
use rustix::process::{Gid, Uid};
use rustix::thread;
use thiserror::Error;

pub use caps::Capability;

/// Capabilities could not be read or given up.
#[derive(Debug, Error)]
#[error("cannot {action}: {source}")]
pub struct CapabilityError {
    action: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn failed<E>(action: &'static str) -> impl FnOnce(E) -> CapabilityError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| CapabilityError {
        action,
        source: source.into(),
    }
}

/// Whether the calling thread holds the capability now (its effective set).
///
/// # Errors
/// Those of `capget(2)`.
pub fn is_held(capability: Capability) -> Result<bool, CapabilityError> {
    caps::has_cap(None, CapSet::Effective, capability).map_err(failed("read the capabilities"))
}

/// Gives up all capabilities except `kept`, permanently: capabilities of `kept` that are not held
/// are not gained, and no program that is started later regains any.
///
/// # Errors
/// Those of `capset(2)` and `prctl(2)`; capabilities that were given up until then stay given up.
pub fn give_up_all_but(kept: &[Capability]) -> Result<(), CapabilityError> {
    keep(kept, &[])
}

/// Like [`give_up_all_but`], but keeps those of `in_reserve` too. They are not effective: a program that this
/// process [executes](crate::execution::execute) can use them, and an action that is run [with] one of them.
///
/// # Errors
/// As [`give_up_all_but`].
pub fn keep(kept: &[Capability], in_reserve: &[Capability]) -> Result<(), CapabilityError> {
    let is_kept = |capability: &Capability| kept.contains(capability);
    let is_permitted =
        |capability: &Capability| is_kept(capability) || in_reserve.contains(capability);
    set_no_new_privileges()?;
    // The bounding set can be reduced only with this capability; without it, no_new_privs alone
    // keeps programs from gaining any.
    if is_held(Capability::CAP_SETPCAP)? {
        for capability in caps::runtime::thread_all_supported() {
            if !is_permitted(&capability) {
                caps::drop(None, CapSet::Bounding, capability)
                    .map_err(failed("reduce the bounding set of capabilities"))?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(failed("clear the ambient capabilities"))?;
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed("read the capabilities"))?;
    let permitted: CapsHashSet = permitted.into_iter().filter(is_permitted).collect();
    let effective: CapsHashSet = permitted.iter().copied().filter(is_kept).collect();
    // In this order, each set stays within the set that limits it.
    for (set, capabilities) in [
        (CapSet::Effective, &effective),
        (CapSet::Permitted, &permitted),
    ] {
        caps::set(None, set, capabilities).map_err(failed("give up capabilities"))?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed("give up capabilities"))
}

/// Runs `action` so that `capability` is effective in the calling thread meanwhile, if it is permitted, as those that are kept
/// [in reserve](keep).
pub fn with<T>(capability: Capability, action: impl FnOnce() -> T) -> T {
    let is_in_reserve = matches!(is_held(capability), Ok(false))
        && caps::raise(None, CapSet::Effective, capability).is_ok();
    let result = action();
    if is_in_reserve {
        let _ = caps::drop(None, CapSet::Effective, capability);
    }
    result
}

/// Runs `start`, which starts a program, so that the program also has `capability` if this thread
/// has it. Without this, the program of an ordinary user would have none. Programs that are started
/// later do not get it.
pub fn pass_on<T>(capability: Capability, start: impl FnOnce() -> T) -> T {
    // Ambient capabilities must be inheritable. If this fails, the program itself reports the
    // missing capability.
    let passed = caps::raise(None, CapSet::Inheritable, capability)
        .and_then(|()| caps::raise(None, CapSet::Ambient, capability));
    let result = start();
    if passed.is_ok() {
        let _ = caps::drop(None, CapSet::Ambient, capability);
    }
    let _ = caps::drop(None, CapSet::Inheritable, capability);
    result
}

/// Runs `execute`, which executes a program in this process, so that the program has all permitted capabilities of this
/// thread. If it returns, the capabilities are as before.
pub fn pass_all_on<T>(execute: impl FnOnce() -> T) -> T {
    // A program of root gets them in any case. For another user's, ambient capabilities must be inheritable; if this
    // fails, the program itself reports the missing capability.
    let permitted = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let _ = caps::set(None, CapSet::Inheritable, &permitted);
    for capability in &permitted {
        let _ = caps::raise(None, CapSet::Ambient, *capability);
    }
    let result = execute();
    let _ = caps::clear(None, CapSet::Ambient);
    let _ = caps::clear(None, CapSet::Inheritable);
    result
}

/// Changes to another user without losing capabilities; normally a change from root to another user
/// drops them. Call it while the process has one thread, with `CAP_SETUID` and `CAP_SETGID`.
/// Afterwards the process has no supplementary groups, and no longer ends with its parent's thread.
///
/// # Errors
/// Those of `setgroups(2)`, `setresgid(2)`, `setresuid(2)`, `prctl(2)` and `capset(2)`.
pub fn become_user(id: u32, group: u32) -> Result<(), CapabilityError> {
    let (id, group) = (Uid::from_raw(id), Gid::from_raw(group));
    let change = || -> rustix::io::Result<()> {
        thread::set_keep_capabilities(true)?;
        thread::set_thread_groups(&[])?;
        thread::set_thread_res_gid(group, group, group)?;
        thread::set_thread_res_uid(id, id, id)?;
        thread::set_keep_capabilities(false)
    };
    change()
        .map_err(io::Error::from)
        .map_err(failed("become the relay's user (relay.user)"))?;
    // The capabilities are still permitted, but not effective.
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed("read the capabilities"))?;
    caps::set(None, CapSet::Effective, &permitted).map_err(failed("keep capabilities"))
}

/// From now on, no program that the calling thread runs gains privileges (`PR_SET_NO_NEW_PRIVS`). The same
/// holds for the threads and processes that this thread starts later.
///
/// # Errors
/// Those of `prctl(2)`.
pub fn set_no_new_privileges() -> Result<(), CapabilityError> {
    rustix::thread::set_no_new_privs(true)
        .map_err(io::Error::from)
        .map_err(failed("forbid new privileges"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities belong to the thread. A thread of its own keeps the other tests unaffected.
    #[test]
    fn what_is_passed_on_is_passed_on_once() {
        let ambient = || caps::read(None, CapSet::Ambient).unwrap();
        let capability = Capability::CAP_NET_ADMIN;
        let had = is_held(capability).unwrap();
        let during = pass_on(capability, ambient);
        assert_eq!(during.contains(&capability), had);
        assert!(ambient().is_empty());
        assert_eq!(is_held(capability).unwrap(), had);
    }

    #[test]
    fn what_is_given_up_is_gone() {
        let result = std::thread::spawn(|| {
            let had = is_held(Capability::CAP_NET_ADMIN).unwrap();
            give_up_all_but(&[Capability::CAP_NET_ADMIN]).unwrap();
            assert_eq!(is_held(Capability::CAP_NET_ADMIN).unwrap(), had);
            for capability in [Capability::CAP_SYS_ADMIN, Capability::CAP_DAC_OVERRIDE] {
                assert!(!is_held(capability).unwrap());
                assert!(caps::raise(None, CapSet::Effective, capability).is_err());
            }
            assert!(rustix::thread::no_new_privs().unwrap());
            give_up_all_but(&[]).unwrap();
            assert!(!is_held(Capability::CAP_NET_ADMIN).unwrap());
        })
        .join();
        assert!(result.is_ok());
    }
}
