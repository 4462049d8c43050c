//! The report of a session, in `/sessions` and in the log.

use std::net::SocketAddr;

use midspan_policy::{Handshake, LegSample};
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::narrow::NarrowReport;

/// A session at one moment. The names of fields contain the units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Unique while the relay runs.
    pub id: u64,
    /// Name of its listener.
    pub listener: String,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// The server's name, if the client gave one: `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// `end-to-end` or `early`.
    pub handshake: String,
    /// Whether the client leg has a learned start: `learned` or `cold`; `None` if the policy
    /// selects no start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The initial window that was selected for the client leg.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_window_segments: Option<u32>,
    /// The phase of its life.
    pub phase: Phase,
    /// Time from the client's first segment that was seen until both legs were connected.
    pub setup_seconds: Option<f64>,
    /// Time since the client's first segment.
    pub duration_seconds: f64,
    /// Bytes handed to the kernel towards the client.
    pub bytes_to_client: u64,
    /// Bytes handed to the kernel towards the server.
    pub bytes_to_server: u64,
    /// The leg towards the client.
    pub client_leg: LegReport,
    /// The leg towards the server.
    pub server_leg: LegReport,
    /// The state of the client's access profile, if one applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrow: Option<NarrowReport>,
}

/// The phase of a session's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The server has not answered yet.
    Connecting,
    /// Both legs are connected.
    Relaying,
    /// One leg has failed; the other one gets the data that had arrived before.
    Settling,
    /// It has ended.
    Ended,
}

/// A leg at one moment, from `TCP_INFO`. Unknown values are `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LegReport {
    /// Midspan's address.
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
    /// Retransmitted segments.
    pub retransmitted_segments: u32,
    /// Retransmitted bytes.
    pub retransmitted_bytes: u64,
    /// Retransmission time-outs; 0 before Linux 6.7.
    #[serde(default)]
    pub timeouts: u16,
    /// Segments in flight.
    pub unacknowledged_segments: u32,
    /// Bytes in the send buffer that were never sent.
    pub not_sent_bytes: u64,
    /// The window that the peer advertises.
    pub peer_window_bytes: u64,
    /// Time in which there was data to send.
    pub busy_seconds: f64,
    /// Part of this time in which the peer's window was the limit.
    pub receive_window_limited_seconds: f64,
    /// Part of this time in which the send buffer was the limit.
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
    /// Why the leg has this congestion control.
    #[serde(default)]
    pub congestion_control_reason: Option<String>,
}

impl From<&LegSample> for LegReport {
    /// A report without the addresses.
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

/// The name in the configuration.
pub(crate) const fn handshake_name(handshake: Handshake) -> &'static str {
    match handshake {
        Handshake::EndToEnd => "end-to-end",
        Handshake::Early => "early",
    }
}
