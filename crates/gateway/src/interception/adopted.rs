//! Rules and routes that a program of this process leaves to the next one (an upgrade).

use serde::{Deserialize, Serialize};

use super::removal::remove_others;
use super::{Interception, InterceptionError, InterceptionNumbers, Plan, local_delivery};

/// The state of the rules that the next program of this process cannot see in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// Whether new connections are intercepted.
    pub taking: bool,
    /// Whether the kernel's parameter `net.ipv4.tcp_early_demux` was on before Midspan changed it.
    pub early_demux_was_on: bool,
}

impl Interception {
    /// Replaces rules and routes with the numbers `former` that the former program of this process has left in force.
    /// If the table has the same name, the rules change in one step. With another name, both tables are in force until
    /// [`own`](Self::own) is called. In both cases existing connections continue, if those with other marks or another
    /// zone are in [`Plan::former_sessions`]. New connections are intercepted from the beginning if `taking`; with
    /// [`Plan::former_listeners`], not before `own` is called, because the former relay still opens connections.
    /// Until then, dropping this value leaves the former rules in force.
    ///
    /// # Errors
    /// See [`InterceptionError`]. After an error, everything stays in force, perhaps with the rules of this plan.
    pub fn adopt(
        plan: Plan,
        was: Adopted,
        former: InterceptionNumbers,
    ) -> Result<Self, InterceptionError> {
        let taking = was.taking && plan.former_listeners.is_none();
        let now = Adopted { taking, ..was };
        Self::install_with(plan, Some((now, former)), true)
    }

    /// The former relay opens no more connections, and from now on dropping this value removes rules and routes. Removes
    /// those of the former program that this one does not use.
    ///
    /// # Errors
    /// Rules or routes could not be changed or removed; the next [`refresh`](Self::refresh) tries again.
    pub fn own(&mut self) -> Result<(), InterceptionError> {
        self.is_own = true;
        if self.plan.former_listeners.take().is_some() {
            self.put_rules()?;
        }
        self.remove_replaced()
    }

    /// Removes the former program's rules and routes that this one does not use, if they are still there.
    pub(super) fn remove_replaced(&mut self) -> Result<(), InterceptionError> {
        if let Some(former) = self.replaced.as_ref().filter(|_| self.is_own) {
            let numbers = &self.plan.numbers;
            remove_others(&self.netlink, former, numbers)?;
            local_delivery::remove_other_marks(&self.netlink, numbers, &self.marks)?;
            self.replaced = None;
        }
        Ok(())
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
