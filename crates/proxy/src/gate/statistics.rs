//! The gate's counters. Each number is defined once, here.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! statistics {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of a gate since its start.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct GateStatistics {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl std::ops::AddAssign for GateStatistics {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)+
            }
        }

        /// The counters of one part of a running gate.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub $name: AtomicU64,)+
        }

        impl Counters {
            /// The numbers now.
            pub fn read(&self) -> GateStatistics {
                GateStatistics {
                    $($name: self.$name.load(Ordering::Relaxed),)+
                }
            }
        }
    };
}

statistics! {
    /// Turns of all threads: at least ten per second and thread if none is late.
    turns,
    /// New connections that were intercepted.
    taken,
    /// Connections that servers refused, so the clients were refused too.
    refused,
    /// Connections that the policy refused.
    refused_by_policy,
    /// Connections refused because no route of the overlay leads to their servers.
    refused_unroutable,
    /// Packets of QUIC that were rejected.
    quic_rejected,
    /// Connections given up because no server answered in time.
    unanswered,
    /// Passed untouched: too many were being opened.
    passed_full,
    /// Passed untouched: the limit of sessions was reached.
    passed_sessions,
    /// Passed untouched: the limit of the client's sessions was reached.
    passed_client,
    /// Passed untouched: the client's prefix opens connections too fast.
    passed_client_rate,
    /// Passed untouched: the operator drains the client.
    passed_drained,
    /// Passed untouched: the memory budget is used up.
    passed_memory,
    /// Passed untouched: no descriptor, or no memory of the kernel.
    passed_descriptors,
    /// Passed untouched: signed with TCP-MD5 or TCP-AO.
    passed_authenticated,
    /// Passed untouched: adds a subflow to a multipath connection (MPTCP) that does not go through
    /// Midspan.
    passed_multipath,
    /// Passed untouched: the table of connection tracking is nearly full.
    passed_tracking,
    /// Not a count: entries of connection tracking, when they were last counted.
    tracked_entries,
    /// Not a count: the most that there may be; 0 where no limit is known.
    tracked_limit,
    /// Passed untouched: the server cannot be reached, or the client's address and port cannot be
    /// used for the server leg.
    passed_unreachable,
    /// Passed untouched: such a connection may have caused a panic.
    passed_suspects,
    /// Passed untouched: the policy lets them pass.
    passed_by_policy,
    /// Passed untouched: of the control group.
    passed_control,
    /// Connections of the control group that were not measured: too many at a time, or not counted
    /// by the kernel.
    control_unmeasured,
    /// Passed untouched: the server had not answered while the client repeated its SYN.
    passed_unanswered,
    /// Passed untouched: the server's answers do not come back through this machine.
    passed_asymmetric,
    /// Asymmetric routes that were found.
    asymmetric_routes_found,
    /// Passed untouched: made room for others, because the client had not repeated its SYN in time.
    passed_overdue,
    /// SYNs dropped because an earlier one of the connection is held, or was just released.
    retransmissions_held,
    /// SYNs dropped because the gate had been stopped while they waited.
    dropped_stale,
    /// SYNs dropped because the client uses a port again whose last connection has not ended on
    /// this machine.
    dropped_port_in_use,
    /// Released connections whose client did not complete the handshake.
    expired,
}

impl GateStatistics {
    /// Connections that passed untouched, by reason.
    #[must_use]
    pub const fn bypasses(&self) -> [(&'static str, u64); 17] {
        // Listed one by one: a new counter must be added here or get a metric of its own.
        let Self {
            turns: _,
            taken: _,
            refused: _,
            refused_unroutable: _,
            quic_rejected: _,
            unanswered: _,
            passed_full,
            passed_sessions,
            passed_client,
            passed_client_rate,
            passed_drained,
            passed_memory,
            passed_descriptors,
            passed_authenticated,
            passed_multipath,
            passed_tracking,
            tracked_entries: _,
            tracked_limit: _,
            passed_unreachable,
            passed_by_policy,
            passed_suspects,
            passed_control,
            control_unmeasured: _,
            passed_unanswered,
            passed_asymmetric,
            passed_overdue,
            dropped_port_in_use: _,
            refused_by_policy: _,
            asymmetric_routes_found: _,
            retransmissions_held: _,
            dropped_stale: _,
            expired: _,
        } = *self;
        [
            ("full", passed_full),
            ("sessions", passed_sessions),
            ("sessions_per_client", passed_client),
            ("connection_rate_per_client", passed_client_rate),
            ("drained", passed_drained),
            ("memory", passed_memory),
            ("descriptors", passed_descriptors),
            ("authenticated", passed_authenticated),
            ("multipath", passed_multipath),
            ("connection_tracking", passed_tracking),
            ("unreachable", passed_unreachable),
            ("policy", passed_by_policy),
            ("panic", passed_suspects),
            ("control", passed_control),
            ("unanswered", passed_unanswered),
            ("asymmetric", passed_asymmetric),
            ("overdue", passed_overdue),
        ]
    }
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
