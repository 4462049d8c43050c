//! What the relay counts. Each number is defined once, here.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! statistics {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a relay has done since its start; all threads together.
        ///
        /// `sessions_opened` is the sum of `sessions_active` and the three `sessions_…` that say
        /// how one ended. Numbers are read one by one while the threads go on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Statistics {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// The numbers of one thread; only that thread writes them.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(super) struct Counters {
            $(pub $name: Counter,)+
        }

        impl Counters {
            /// Adds these numbers to a sum.
            pub fn add_to(&self, sum: &mut Statistics) {
                $(sum.$name = sum.$name.wrapping_add(self.$name.get());)+
            }
        }
    };
}

statistics! {
    /// Threads that run.
    threads_running,
    /// Turns of their loops.
    turns,
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
    /// Connections that the policy refused.
    refused_by_policy,
    /// Connections shed: as many sessions as there may be.
    shed_sessions,
    /// Connections shed: as many sessions of the client as there may be.
    shed_client,
    /// Connections shed: the memory budget is used up.
    shed_memory,
    /// Connections shed: no descriptor, or no memory of the kernel.
    shed_descriptors,
    /// Times that the buffers of a direction were bounded since memory was short.
    directions_bounded,
    /// Clients that are being spoken with now; they count as sessions that exist.
    negotiations_active,
    /// Clients that went away before they had said what they want.
    negotiations_abandoned,
    /// Clients or servers that the access rules refused.
    refused_by_access,
    /// Clients that broke the rules of their language.
    refused_malformed,
    /// Clients that asked for more than this proxy does.
    refused_unsupported,
    /// Clients without a name and password, or with wrong ones.
    refused_unauthenticated,
    /// Clients that did not say in time what they want.
    refused_silent,
    /// Clients for which there was no room.
    refused_overloaded,
    /// Names that have no address.
    names_not_found,
    /// Bytes handed to the kernel towards clients.
    bytes_to_client,
    /// Bytes handed to the kernel towards servers.
    bytes_to_server,
    /// Of these, moved through memory of the relay.
    bytes_copied,
    /// Of these, moved through pipes.
    bytes_spliced,
    /// Pipes that exist.
    pipes,
    /// Pipes that hold bytes of a session.
    pipes_in_use,
    /// Splices that had to be copies because no pipe was to be had.
    pipe_shortages,
    /// Connections that could not be accepted or not be opened towards the server for want of
    /// descriptors or memory.
    accept_errors,
    /// Times that accepting was paused for a moment after such an error.
    accept_pauses,
    /// Socket options that the policy asked for and the kernel refused.
    option_errors,
    /// Times that a session was sampled for the policy.
    samples,
    /// Oversized segments sent, those sent again included.
    oversized_segments,
    /// Oversized segments sent to see whether they reach a client.
    oversized_probes,
    /// Times that oversized segments were lost and the client's own size was gone back to.
    oversized_fallbacks,
    /// Times that loss took a leg back to the window that its client advertises.
    sending_ahead_losses,
    /// ACKs without data received from clients with an access profile, in sessions that ended.
    narrow_acknowledgements,
    /// Their bytes, IP and TCP headers included.
    narrow_acknowledgement_bytes,
    /// Sessions whose line was not logged because the log could not keep up.
    lines_lost,
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
