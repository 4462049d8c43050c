//! Network and user namespaces (namespaces(7)).

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::thread::UnshareFlags;
use thiserror::Error;

use crate::process;

/// A namespace could not be made or used.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// The kernel refuses a user namespace to an ordinary user.
    #[error(
        "this kernel refuses user namespaces to ordinary users ({source}): run as root, or allow \
         them (sysctl user.max_user_namespaces above 0, and on some systems \
         kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    UserNamespaceRefused {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses a network namespace.
    #[error("cannot make a network namespace: {source}")]
    NetworkNamespaceRefused {
        /// The kernel's error.
        source: io::Error,
    },
    /// Something else failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What the call was for.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses a value of a parameter, or has no such parameter.
    #[error(
        "cannot set the kernel parameter {name} to \"{value}\" in a network namespace: {source}{}",
        advice(.name, .source)
    )]
    Parameter {
        /// The parameter, below `/proc/sys`.
        name: String,
        /// The value.
        value: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The namespace's thread has ended.
    #[error("the thread of network namespace \"{0}\" has ended")]
    ThreadEnded(String),
}

/// What to do about a parameter that the kernel refuses.
fn advice(name: &str, source: &io::Error) -> &'static str {
    match source.kind() {
        // Not even root of the namespace may choose another one.
        io::ErrorKind::PermissionDenied if name.ends_with("/tcp_congestion_control") => {
            "; a namespace may use those that the host permits: add it to \
             net.ipv4.tcp_allowed_congestion_control of the host (sysctl, as root)"
        }
        _ => "",
    }
}

/// The privileges with which this process entered its own namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// Root (or `CAP_SYS_ADMIN`): only a new network namespace.
    Root,
    /// An ordinary user: a user namespace in which the process is root, and a network namespace.
    OrdinaryUser,
}

/// Leaves the host's network for an empty network namespace that ends with this process, so that
/// the process can change nothing on the host and leaves nothing behind.
///
/// Must be called while the process has one thread: the kernel does not permit a process with
/// several threads to make a user namespace.
pub fn isolate() -> Result<Privilege, NamespaceError> {
    if unshare(UnshareFlags::NEWNET).is_ok() {
        return Ok(Privilege::Root);
    }
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(UnshareFlags::NEWUSER)
        .map_err(|source| NamespaceError::UserNamespaceRefused { source })?;
    let write = |file: &str, text: String| {
        fs::write(file, text).map_err(|source| NamespaceError::Io {
            action: "map this user to root of the new user namespace",
            source,
        })
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {user} 1"))?;
    write("/proc/self/gid_map", format!("0 {group} 1"))?;
    unshare(UnshareFlags::NEWNET)
        .map_err(|source| NamespaceError::NetworkNamespaceRefused { source })?;
    Ok(Privilege::OrdinaryUser)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the descriptor table is not unshared (`UnshareFlags::FILES` is never passed), which
    // is the one case that could invalidate descriptors held by other threads.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace with a thread in it. The namespace ends when this value, the sockets opened
/// in it and the processes started in it are gone.
pub struct NetworkNamespace {
    name: String,
    descriptor: OwnedFd,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl NetworkNamespace {
    /// Makes an empty network namespace; `name` is for messages.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (made, result) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("ns {name}"))
            .spawn(move || {
                let descriptor = enter_new();
                let failed = descriptor.is_err();
                if made.send(descriptor).is_err() || failed {
                    return;
                }
                for job in queue {
                    job();
                }
            })
            .map_err(|source| NamespaceError::Io {
                action: "start a thread",
                source,
            })?;
        let descriptor = result
            .recv()
            .map_err(|_| NamespaceError::ThreadEnded(name.to_owned()))??;
        Ok(Self {
            name: name.to_owned(),
            descriptor,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// The name given at the start.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `job` on the namespace's thread and returns its result. Sockets opened there belong
    /// to the namespace wherever they are used later.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NamespaceError> {
        let ended = || NamespaceError::ThreadEnded(self.name.clone());
        let (send, receive) = mpsc::channel();
        let job: Job = Box::new(move || {
            // The receiver waits below, so it still exists.
            let _ = send.send(job());
        });
        self.jobs
            .as_ref()
            .ok_or_else(ended)?
            .send(job)
            .map_err(|_| ended())?;
        receive.recv().map_err(|_| ended())
    }

    /// Starts a program in the namespace. It is killed when this namespace's thread ends, even
    /// if this process is killed.
    pub fn spawn(&self, mut command: Command) -> Result<Child, NamespaceError> {
        process::end_with_parent_thread(&mut command);
        self.run(move || command.spawn())?
            .map_err(|source| NamespaceError::Io {
                action: "start a program in a network namespace",
                source,
            })
    }

    /// Sets a kernel parameter of the namespace, such as `net/ipv4/ip_forward`.
    pub fn set_parameter(&self, name: &str, value: &str) -> Result<(), NamespaceError> {
        let path = format!("/proc/sys/{name}");
        let written = value.to_owned();
        self.run(move || fs::write(path, written))?
            .map_err(|source| NamespaceError::Parameter {
                name: name.to_owned(),
                value: value.to_owned(),
                source,
            })
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn enter_new() -> Result<OwnedFd, NamespaceError> {
    unshare(UnshareFlags::NEWNET)
        .map_err(|source| NamespaceError::NetworkNamespaceRefused { source })?;
    // Sleeps of programs started here end on time, not up to 50 µs late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    fs::File::open("/proc/thread-self/ns/net")
        .map(OwnedFd::from)
        .map_err(|source| NamespaceError::Io {
            action: "open /proc/thread-self/ns/net",
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_congestion_control_is_explained() {
        let refused = |name: &str| NamespaceError::Parameter {
            name: name.to_owned(),
            value: "cubic".to_owned(),
            source: io::ErrorKind::PermissionDenied.into(),
        };
        let of = |name| refused(name).to_string();
        assert!(of("net/ipv4/tcp_congestion_control").contains("tcp_allowed_congestion_control"));
        assert!(!of("net/ipv4/tcp_tw_reuse").contains("tcp_allowed_congestion_control"));
    }
}
