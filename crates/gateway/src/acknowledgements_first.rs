//! A queue of an interface in which ACKs go before data (Tam §5.2; RFC 3449 §5.3).
//!
//! The queue has the queue discipline HTB with two classes. The class of small packets has
//! priority. The class of all other packets has a quarter of the rate for itself, so that data is
//! never starved. The rules of [`acknowledgement_queue`](crate::acknowledgement_queue) give ACKs
//! the priority value that selects the first class. The program `tc` (tc-htb(8)) sets the queue;
//! therefore the process must be allowed to run programs.

use std::io;
use std::process::{Command, Stdio};

use midspan_units::BitRate;
use thiserror::Error;

use midspan_linux::capability::{self, Capability};

/// The handle of Midspan's queue discipline.
const HANDLE: &str = "5317:";
/// The class of ACKs as `skb->priority` names it: 5317:10.
pub const PRIORITY: u32 = 0x5317_0010;
/// The handle of queue disciplines that the kernel sets by itself.
const DEFAULT: &str = "0:";
/// The longest part of an error message of `tc` that is shown, in characters.
const COMPLAINT_LIMIT: usize = 500;

/// The queue in which ACKs go first cannot be set.
#[derive(Debug, Error)]
pub enum AckFirstError {
    /// `tc` is missing, or cannot be started.
    #[error("cannot run tc: {0} (install it: apt install iproute2)")]
    Run(#[source] io::Error),
    /// `tc` refused. Most often the kernel has no HTB.
    #[error(
        "tc cannot {action}: {complaint} (a queue in which ACKs go first needs a kernel with \
         CONFIG_NET_SCH_HTB: modprobe sch_htb)"
    )]
    Refused {
        /// What `tc` was to do.
        action: &'static str,
        /// The error message of `tc`.
        complaint: String,
    },
    /// The interface has a queue discipline that the operator or another program has set.
    #[error(
        "{interface} has a queue discipline of its own ({found}), which would be replaced: remove it, or give ACKs a class in it"
    )]
    Taken {
        /// The interface.
        interface: String,
        /// What `tc` shows of the queue discipline.
        found: String,
    },
}

/// The queue of an interface. It is removed when this value is dropped.
#[derive(Debug)]
pub struct AckFirstQueue {
    interface: String,
}

impl AckFirstQueue {
    /// Sets the queue for an upstream of the rate `upstream`. Replaces a queue that an earlier run
    /// has left.
    ///
    /// # Errors
    /// See [`AckFirstError`].
    pub fn set(interface: &str, upstream: BitRate) -> Result<Self, AckFirstError> {
        let found = tc(
            "look at the queue",
            &["qdisc", "show", "dev", interface, "root"],
        )?;
        let is_ours = found.contains(&format!("htb {HANDLE}"));
        let is_default = found.trim().is_empty() || found.contains(&format!(" {DEFAULT} "));
        if !is_ours && !is_default {
            return Err(AckFirstError::Taken {
                interface: interface.to_owned(),
                found: found.trim().chars().take(COMPLAINT_LIMIT).collect(),
            });
        }
        if is_ours {
            tc(
                "remove an old queue",
                &["qdisc", "del", "dev", interface, "root"],
            )?;
        }
        tc(
            "set a queue",
            &[
                "qdisc", "replace", "dev", interface, "root", "handle", HANDLE, "htb", "default",
                "20",
            ],
        )?;
        let queue = Self {
            interface: interface.to_owned(),
        };
        let rate = upstream.bits_per_second();
        queue.class("5317:", "5317:1", rate, rate, 0)?;
        queue.class("5317:1", "5317:10", rate - rate / 4, rate, 0)?;
        queue.class("5317:1", "5317:20", (rate / 4).max(1), rate, 1)?;
        Ok(queue)
    }

    fn class(
        &self,
        parent: &str,
        name: &str,
        rate: u64,
        ceiling: u64,
        priority: u8,
    ) -> Result<(), AckFirstError> {
        let (rate, ceiling) = (format!("{rate}bit"), format!("{ceiling}bit"));
        let priority = priority.to_string();
        // With a burst of one full packet, because otherwise ACKs would wait behind a burst of
        // data.
        let arguments = [
            "class",
            "add",
            "dev",
            &self.interface,
            "parent",
            parent,
            "classid",
            name,
            "htb",
            "rate",
            &rate,
            "ceil",
            &ceiling,
            "burst",
            "1600",
            "cburst",
            "1600",
            "quantum",
            "1600",
            "prio",
            &priority,
        ];
        tc("set a class of a queue", &arguments).map(|_| ())
    }
}

impl Drop for AckFirstQueue {
    fn drop(&mut self) {
        // After the removal, the kernel sets its default queue discipline again. The handle protects a
        // queue discipline that somebody else has set meanwhile.
        let _ = tc(
            "remove a queue",
            &[
                "qdisc",
                "del",
                "dev",
                &self.interface,
                "root",
                "handle",
                HANDLE,
            ],
        );
    }
}

fn tc(action: &'static str, arguments: &[&str]) -> Result<String, AckFirstError> {
    let mut command = Command::new("tc");
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin")
        .stdin(Stdio::null());
    let output = capability::pass_on(Capability::CAP_NET_ADMIN, || command.output())
        .map_err(AckFirstError::Run)?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let complaint = complaint.trim().chars().take(COMPLAINT_LIMIT).collect();
        return Err(AckFirstError::Refused { action, complaint });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
