//! The relay's counters. Each number is defined once, here.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! statistics {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of a relay since its start; all threads together.
        ///
        /// `sessions_opened` is the sum of `sessions_active`, `sessions_handed_over`, and the three
        /// `sessions_…` that count ends. The numbers are read one by one while the threads continue.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Statistics {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// The counters of one thread; only this thread writes them.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(super) struct Counters {
            $(pub $name: Counter,)+
        }

        impl Counters {
            /// Adds these counters to a sum.
            pub fn add_to(&self, sum: &mut Statistics) {
                $(sum.$name = sum.$name.wrapping_add(self.$name.get());)+
            }
        }

        impl Statistics {
            /// Adds other numbers.
            pub(super) const fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }
    };
}

statistics! {
    /// Threads that run.
    threads_running,
    /// Turns of their loops.
    turns,
    /// How often a thread reset its sessions after a fault of the program, and continued.
    panics,
    /// Threads that were stuck, and were replaced.
    threads_replaced,
    /// Connections accepted and not refused by the policy.
    sessions_opened,
    /// Sessions that exist now.
    sessions_active,
    /// Sessions whose both directions ended with a FIN.
    sessions_closed,
    /// Sessions that ended by a reset, a time-out or the stop of the relay.
    sessions_reset,
    /// Sessions whose server could not be reached.
    sessions_unconnected,
    /// Sessions without any mechanism, because such a connection may have caused a fault, or by the policy.
    sessions_plain,
    /// Sessions that another relay continues.
    sessions_handed_over,
    /// Part of the opened sessions that began in another relay.
    sessions_taken_over,
    /// Connections that the policy refused.
    refused_by_policy,
    /// Connections that were refused because such a connection may have caused a fault, also when it was relayed
    /// plainly.
    refused_suspects,
    /// Connections shed because the limit of sessions was reached.
    shed_sessions,
    /// Connections shed because the limit of the client's sessions was reached.
    shed_client,
    /// Connections shed or refused because the client's prefix opened them too fast.
    shed_client_rate,
    /// Connections shed because the memory budget was used up.
    shed_memory,
    /// Connections shed because descriptors or kernel memory were short.
    shed_descriptors,
    /// How often the buffers of a direction were bounded because memory was short.
    directions_bounded,
    /// Clients that are negotiating; they count as sessions that exist.
    negotiations_active,
    /// Clients that closed their connection before their request was complete.
    negotiations_abandoned,
    /// Clients or servers that the access rules refused.
    refused_by_access,
    /// Clients that an operator drains.
    refused_drained,
    /// Clients that broke the rules of their protocol.
    refused_malformed,
    /// Clients that requested a feature that this proxy does not have.
    refused_unsupported,
    /// Clients without a name and password, or with wrong ones.
    refused_unauthenticated,
    /// Clients that did not send their request in time.
    refused_silent,
    /// Clients for which there was no room.
    refused_overloaded,
    /// Names that have no address.
    names_not_found,
    /// Hops of an overlay that had passed this node before, or too many nodes.
    refused_looping,
    /// Hops whose fields do not agree with the node that sent them.
    refused_forged,
    /// Hops that this node does not carry: it is no transit node or no exit, or has no such next node.
    refused_unroutable,
    /// Bytes handed to the kernel towards clients.
    bytes_to_client,
    /// Bytes handed to the kernel towards servers.
    bytes_to_server,
    /// Part of these bytes that was moved through memory of the relay.
    bytes_copied,
    /// Part of these bytes that was moved through pipes.
    bytes_spliced,
    /// Pipes that exist.
    pipes,
    /// Pipes with bytes of a session.
    pipes_in_use,
    /// Splices that became copies because no pipe was available.
    pipe_shortages,
    /// Connections that could not be accepted, or not be opened to the server, because descriptors
    /// or memory were short.
    accept_errors,
    /// How often accepting was paused for a moment after such an error.
    accept_pauses,
    /// Socket options that the policy set and the kernel refused.
    option_errors,
    /// How often a session was sampled for the policy.
    samples,
    /// Oversized segments sent, with retransmissions.
    oversized_segments,
    /// Oversized segments sent as probes.
    oversized_probes,
    /// How often oversized segments were lost and the leg fell back to the client's own size.
    oversized_fallbacks,
    /// How often a loss limited a leg to the window that its client advertises.
    sending_ahead_losses,
    /// Sessions that sent ahead of the window of a client without an access profile.
    sessions_ahead,
    /// ACKs without data received from clients with an access profile, in sessions that ended.
    narrow_acknowledgements,
    /// Bytes of these ACKs, with IP and TCP headers.
    narrow_acknowledgement_bytes,
    /// Sessions whose line was not logged because the log could not keep up.
    lines_lost,
}

impl Statistics {
    /// The numbers of a thread that was replaced: its sessions have been reset, and it has nothing any more.
    pub(super) const fn without_thread(mut self) -> Self {
        self.sessions_reset = self.sessions_reset.wrapping_add(self.sessions_active);
        self.sessions_active = 0;
        self.negotiations_active = 0;
        self.pipes = 0;
        self.pipes_in_use = 0;
        self.threads_running = 0;
        self
    }

    /// Connections that ended before a session began, because they were refused.
    #[must_use]
    pub const fn refusals(&self) -> u64 {
        self.refused_by_policy
            + self.refused_suspects
            + self.refused_by_access
            + self.refused_drained
            + self.refused_malformed
            + self.refused_unsupported
            + self.refused_unauthenticated
            + self.refused_silent
            + self.refused_overloaded
            + self.names_not_found
            + self.refused_looping
            + self.refused_forged
            + self.refused_unroutable
    }
}

/// A number with one writer.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to it. Only one thread writes, so this needs no locked instruction.
    pub fn add(&self, count: u64) {
        self.set(self.get().wrapping_add(count));
    }

    /// Takes one off.
    pub fn decrement(&self) {
        self.set(self.get().wrapping_sub(1));
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}
