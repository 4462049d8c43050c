//! How much memory a proxy may use if the configuration does not set it.
//!
//! | bound | of which amount | reason |
//! | --- | --- | --- |
//! | a quarter | the machine's memory | other programs need some |
//! | three quarters | the tightest limit of the cgroups of the process | beyond the limit the kernel ends the process |
//! | half, for queues only | the pressure of TCP (`net.ipv4.tcp_mem`) | beyond the pressure the kernel holds all sockets of the machine back, ssh too |
//!
//! The lower of the first two is the budget of all sessions, but the budget is at least [`LEAST_BUDGET`]. The
//! third bounds what the queues of all sessions may hold beyond the minimum of each session.

use crate::memory_share::sessions_carried;

/// A budget is never less than this: 16 MiB.
pub const LEAST_BUDGET: u64 = 16 << 20;

/// The limits that the machine and the cgroups of the process set, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryBounds {
    /// Memory of the machine.
    pub machine: u64,
    /// The tightest limit of the control groups; `None` if there is none.
    pub group: Option<u64>,
    /// Memory of all TCP sockets of the machine above which the kernel holds them back; `None` if
    /// unknown.
    pub pressure: Option<u64>,
}

/// The bound that determines the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A quarter of the machine's memory.
    Machine,
    /// Three quarters of a control group's limit.
    Group,
    /// Neither: both are below the least budget.
    Least,
}

impl MemoryBounds {
    /// A quarter of the machine's memory.
    #[must_use]
    pub const fn of_machine(&self) -> u64 {
        self.machine / 4
    }

    /// Three quarters of the control group's limit.
    #[must_use]
    pub fn of_group(&self) -> Option<u64> {
        self.group.map(|limit| limit / 4 * 3)
    }

    /// The bytes that queues may hold beyond the minimum of each session: half of the pressure. If
    /// that is unknown, it is assumed to be a sixteenth of the machine's memory, as Linux sets it.
    #[must_use]
    pub fn of_queues(&self) -> u64 {
        self.pressure.unwrap_or(self.machine / 16) / 2
    }

    /// The budget in bytes, and the bound that determines it.
    #[must_use]
    pub fn budget(&self) -> (u64, Bound) {
        let machine = self.of_machine();
        let (budget, bound) = match self.of_group() {
            Some(group) if group < machine => (group, Bound::Group),
            _ => (machine, Bound::Machine),
        };
        match budget < LEAST_BUDGET {
            true => (LEAST_BUDGET, Bound::Least),
            false => (budget, bound),
        }
    }

    /// How many idle sessions fit into the budget.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        sessions_carried(self.budget().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_share::{EACH_SESSION, LEAST, MemoryShare};

    const MIB: u64 = 1 << 20;

    fn bounds(machine: u64, group: Option<u64>, pressure: Option<u64>) -> MemoryBounds {
        MemoryBounds {
            machine: machine * MIB,
            group: group.map(|limit| limit * MIB),
            pressure: pressure.map(|pressure| pressure * MIB),
        }
    }

    #[test]
    fn the_least_bound_holds() {
        let budget = |machine, group| bounds(machine, group, None).budget();
        assert_eq!(budget(4096, None), (1024 * MIB, Bound::Machine));
        assert_eq!(budget(4096, Some(256)), (192 * MIB, Bound::Group));
        // A limit above the machine's memory bounds nothing.
        assert_eq!(budget(4096, Some(1 << 40)), (1024 * MIB, Bound::Machine));
        assert_eq!(budget(4096, Some(8)), (16 * MIB, Bound::Least));
        assert_eq!(budget(32, None), (16 * MIB, Bound::Least));
        assert_eq!(bounds(1, None, Some(64)).of_queues(), 32 * MIB);
        assert_eq!(bounds(1024, None, None).of_queues(), 32 * MIB);
    }

    /// A gateway with 1 GB, of which the kernel keeps some; Linux sets the pressure to a sixteenth.
    #[test]
    fn a_gateway_with_a_gigabyte_carries_5000_idle_sessions() {
        let gateway = bounds(980, None, Some(60));
        assert!(gateway.sessions() >= 5000, "{}", gateway.sessions());
        let mut share = MemoryShare {
            budget: gateway.budget().0,
            queue_budget: gateway.of_queues(),
            reserved: 0,
            aside: 0,
            sessions: 0,
            level: u64::MAX,
        };
        // Each is idle, and has the least buffers.
        while share.has_room_for_session() {
            share.sessions += 1;
            share.reserved += EACH_SESSION + 6 * LEAST;
        }
        assert!(share.sessions >= 5000, "{}", share.sessions);
        // None of that is in queues.
        assert_eq!(share.queues(), 0);
    }
}
