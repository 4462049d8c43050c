//! Rules and routes that a program of this process leaves to the next one (an upgrade).

use serde::{Deserialize, Serialize};

use super::{Interception, InterceptionError, Plan};

/// The state of the rules that the next program of this process cannot see in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// Whether new connections are intercepted.
    pub taking: bool,
    /// Whether the kernel's parameter `net.ipv4.tcp_early_demux` was on before Midspan changed it.
    pub early_demux_was_on: bool,
}

/// How rules and routes are treated that are in force already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// They are leftovers, and are removed.
    Removed,
    /// Connections need them, so they stay until they are replaced.
    Adopted(Adopted),
}

impl Interception {
    /// Replaces rules and routes that the former program of this process has left in force: the rules in one step, so
    /// that existing connections continue. New connections are intercepted from the beginning if `taking`. Until
    /// [`own`](Self::own) is called, dropping this value leaves everything in force.
    ///
    /// # Errors
    /// See [`InterceptionError`]. After an error, everything stays in force, perhaps with the rules of this plan.
    pub fn adopt(plan: Plan, was: Adopted) -> Result<Self, InterceptionError> {
        Self::install_with(plan, Former::Adopted(was), true)
    }

    /// From now on, dropping this value removes rules and routes.
    pub const fn own(&mut self) {
        self.is_own = true;
    }

    /// What the next program of this process needs to [adopt](Self::adopt) rules and routes.
    #[must_use]
    pub const fn adoptable(&self) -> Adopted {
        Adopted {
            taking: self.taking,
            early_demux_was_on: self.early_demux.was_on(),
        }
    }
}
