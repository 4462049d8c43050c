//! One line of the log for each session, at its end.
//!
//! A log may be slow: a terminal that is scrolled back, a pipe that nobody reads. So the lines are
//! written by a thread of their own, through a bounded queue. What finds the queue full is counted
//! and not logged.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{Level, info};

use super::{Ending, LegReport, SessionReport};

/// Lines that may wait to be written.
const QUEUE: usize = 4096;

/// Between two tries to put a line into a full queue.
const LAST_PAUSE: Duration = Duration::from_millis(2);

/// A session that has ended.
#[derive(Debug)]
pub struct Ended {
    pub report: SessionReport,
    pub ending: Ending,
}

/// The way to the log, for one thread.
#[derive(Debug, Clone)]
pub struct Journal(SyncSender<Box<Ended>>);

impl Journal {
    /// Starts the thread that writes; it ends with the last clone of the journal.
    ///
    /// # Errors
    /// A thread cannot be had.
    pub fn start() -> std::io::Result<(Self, JoinHandle<()>)> {
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write_all(&receiver))?;
        Ok((Self(sender), thread))
    }

    /// Whether anybody wants the lines.
    pub fn is_wanted() -> bool {
        tracing::enabled!(target: "session", Level::INFO)
    }

    /// Queues a line; `false` where the log cannot keep up.
    pub fn write(&self, ended: Ended) -> bool {
        self.0.try_send(Box::new(ended)).is_ok()
    }

    /// Queues a line of a session that ends together with its thread, which may wait a little.
    pub fn write_until(&self, ended: Ended, limit: Instant) -> bool {
        let mut line = Box::new(ended);
        loop {
            match self.0.try_send(line) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if Instant::now() < limit => {
                    line = back;
                    std::thread::sleep(LAST_PAUSE);
                }
                Err(_) => return false,
            }
        }
    }
}

fn write_all(receiver: &Receiver<Box<Ended>>) {
    while let Ok(ended) = receiver.recv() {
        write(&ended);
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
        profile = narrow.map(|narrow| narrow.profile.as_str()),
        oversized_segments = narrow.map(|narrow| narrow.oversized_segments),
        oversized_probes = narrow.map(|narrow| narrow.probes),
        oversized_fallbacks = narrow.map(|narrow| narrow.fallbacks),
        sending_ahead_losses = narrow.map(|narrow| narrow.sending_ahead_losses),
        client_acknowledgements = narrow.map(|narrow| narrow.acknowledgements),
        client_acknowledgement_bytes = narrow.map(|narrow| narrow.acknowledgement_bytes),
        "session ended"
    );
}
