//! One log line for each session, at its end.
//!
//! The session's thread only queues the data; the log's thread formats and writes the line.

use std::time::Instant;

use tracing::{Level, info};

use super::{Ending, LegReport, SessionReport};

/// A session that has ended.
#[derive(Debug)]
pub struct Ended {
    pub report: SessionReport,
    pub ending: Ending,
}

impl Ended {
    /// Whether the log's level includes these lines.
    pub fn is_wanted() -> bool {
        tracing::enabled!(target: "session", Level::INFO)
    }

    /// Logs the session; `false` where the log cannot keep up.
    pub fn log(self: Box<Self>) -> bool {
        midspan_log::later(move || write(&self))
    }

    /// Logs a session that ends together with its thread, which may wait a little.
    pub fn log_until(self: Box<Self>, limit: Instant) -> bool {
        midspan_log::later_until(move || write(&self), limit)
    }
}

fn write(ended: &Ended) {
    let session = &ended.report;
    let rtt = |leg: &LegReport| (leg.rtt_seconds, leg.min_rtt_seconds);
    let (client_rtt, client_min_rtt) = rtt(&session.client_leg);
    let (server_rtt, server_min_rtt) = rtt(&session.server_leg);
    let narrow = session.narrow.as_ref();
    info!(
        target: "session",
        session = session.id,
        listener = session.listener,
        client = %session.client,
        server = %session.server,
        destination = session.destination,
        handshake = session.handshake,
        start = session.start,
        initial_window_segments = session.initial_window_segments,
        ended = ended.ending.name(),
        setup_seconds = session.setup_seconds,
        duration_seconds = session.duration_seconds,
        bytes_to_client = session.bytes_to_client,
        bytes_to_server = session.bytes_to_server,
        client_rtt_seconds = client_rtt,
        client_min_rtt_seconds = client_min_rtt,
        client_retransmitted_segments = session.client_leg.retransmitted_segments,
        client_retransmitted_bytes = session.client_leg.retransmitted_bytes,
        client_timeouts = session.client_leg.timeouts,
        client_delivery_rate_bits_per_second = session.client_leg.delivery_rate_bits_per_second,
        client_congestion_control = session.client_leg.congestion_control,
        client_congestion_control_reason = session.client_leg.congestion_control_reason,
        client_largest_forward_data_bytes = session.client_leg.largest_forward_data_bytes,
        client_largest_burst_bytes = session.client_leg.largest_burst_bytes,
        server_rtt_seconds = server_rtt,
        server_min_rtt_seconds = server_min_rtt,
        server_retransmitted_segments = session.server_leg.retransmitted_segments,
        server_retransmitted_bytes = session.server_leg.retransmitted_bytes,
        server_timeouts = session.server_leg.timeouts,
        server_delivery_rate_bits_per_second = session.server_leg.delivery_rate_bits_per_second,
        server_congestion_control = session.server_leg.congestion_control,
        server_congestion_control_reason = session.server_leg.congestion_control_reason,
        server_largest_forward_data_bytes = session.server_leg.largest_forward_data_bytes,
        server_largest_burst_bytes = session.server_leg.largest_burst_bytes,
        profile = narrow.map(|narrow| narrow.profile.as_str()).filter(|name| !name.is_empty()),
        oversized_segments = narrow.map(|narrow| narrow.oversized_segments),
        oversized_probes = narrow.map(|narrow| narrow.probes),
        oversized_fallbacks = narrow.map(|narrow| narrow.fallbacks),
        sending_ahead = narrow.and_then(|narrow| narrow.sending_ahead.as_deref()),
        sending_ahead_losses = narrow.map(|narrow| narrow.sending_ahead_losses),
        client_acknowledgements = narrow.map(|narrow| narrow.acknowledgements),
        client_acknowledgement_bytes = narrow.map(|narrow| narrow.acknowledgement_bytes),
        "session ended"
    );
}
