//! A session as it is shown.

use std::net::SocketAddr;

use midspan_policy::{Handshake, LegSample};
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::narrow::NarrowReport;

/// A session at one moment. Names say the units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Unique in the run of the relay.
    pub id: u64,
    /// Name of its listener.
    pub listener: String,
    /// Who called.
    pub client: SocketAddr,
    /// Who was called.
    pub server: SocketAddr,
    /// What the client called the server, where it gave a name: `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// When the client was answered: `end-to-end` or `early`.
    pub handshake: String,
    /// Whether the client's path was known when its leg began, where a start that knows the path is
    /// chosen: `learned` or `cold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The initial window chosen for the client's leg.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_window_segments: Option<u32>,
    /// Where it is in its life.
    pub phase: Phase,
    /// From the client's first segment, as far as it was seen, until both legs were connected.
    pub setup_seconds: Option<f64>,
    /// From the client's first segment on.
    pub duration_seconds: f64,
    /// Handed to the kernel towards the client.
    pub bytes_to_client: u64,
    /// Handed to the kernel towards the server.
    pub bytes_to_server: u64,
    /// The leg towards the client.
    pub client_leg: LegReport,
    /// The leg towards the server.
    pub server_leg: LegReport,
    /// What was done for the client's access link, where a profile is for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrow: Option<NarrowReport>,
}

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The server has not answered yet.
    Connecting,
    /// Both legs live.
    Relaying,
    /// A leg has failed; the other takes what that one had delivered.
    Settling,
    /// It has ended.
    Ended,
}

/// A leg at one moment, as the kernel tells (`TCP_INFO`); what it does not know yet is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LegReport {
    /// Our address.
    pub local: Option<SocketAddr>,
    /// Address of the peer.
    pub peer: Option<SocketAddr>,
    /// Smoothed round-trip time.
    pub rtt_seconds: Option<f64>,
    /// Smallest round-trip time.
    pub min_rtt_seconds: Option<f64>,
    /// Delivery rate of the newest window.
    pub delivery_rate_bits_per_second: Option<u64>,
    /// Congestion window.
    pub congestion_window_segments: u32,
    /// Segment size.
    pub segment_size_bytes: u32,
    /// Sent again.
    pub retransmitted_segments: u32,
    /// Sent again.
    pub retransmitted_bytes: u64,
    /// Retransmission time-outs; 0 before Linux 6.7.
    #[serde(default)]
    pub timeouts: u16,
    /// Sent and not acknowledged.
    pub unacknowledged_segments: u32,
    /// In the send buffer and never sent.
    pub not_sent_bytes: u64,
    /// The window that the peer advertises.
    pub peer_window_bytes: u64,
    /// Time in which there was data to send.
    pub busy_seconds: f64,
    /// Of this, held back by the peer's window.
    pub receive_window_limited_seconds: f64,
    /// Of this, held back by the send buffer.
    pub send_buffer_limited_seconds: f64,
    /// Most bytes for this leg that were read in one turn.
    #[serde(default)]
    pub largest_forward_data_bytes: u32,
    /// Most bytes that were handed to this leg's socket in one turn.
    #[serde(default)]
    pub largest_burst_bytes: u32,
    /// Congestion control.
    #[serde(default)]
    pub congestion_control: Option<String>,
    /// Why this one.
    #[serde(default)]
    pub congestion_control_reason: Option<String>,
}

impl From<&LegSample> for LegReport {
    /// Without the addresses.
    fn from(sample: &LegSample) -> Self {
        let seconds = |time: Option<TimeSpan>| time.map(TimeSpan::as_seconds);
        Self {
            local: None,
            peer: None,
            rtt_seconds: seconds(sample.round_trip_time),
            min_rtt_seconds: seconds(sample.minimum_round_trip_time),
            delivery_rate_bits_per_second: sample.delivery_rate.map(|rate| rate.bits_per_second()),
            congestion_window_segments: sample.congestion_window,
            segment_size_bytes: sample.segment_size,
            retransmitted_segments: sample.segments_retransmitted,
            retransmitted_bytes: sample.bytes_retransmitted.bytes(),
            timeouts: sample.timeouts,
            unacknowledged_segments: sample.unacknowledged,
            not_sent_bytes: sample.not_sent.bytes(),
            peer_window_bytes: sample.peer_window,
            busy_seconds: sample.limited.busy.as_seconds(),
            receive_window_limited_seconds: sample.limited.receive_window.as_seconds(),
            send_buffer_limited_seconds: sample.limited.send_buffer.as_seconds(),
            largest_forward_data_bytes: 0,
            largest_burst_bytes: 0,
            congestion_control: None,
            congestion_control_reason: None,
        }
    }
}

/// As it is written in the configuration.
pub(crate) const fn handshake_name(handshake: Handshake) -> &'static str {
    match handshake {
        Handshake::EndToEnd => "end-to-end",
        Handshake::Early => "early",
    }
}
