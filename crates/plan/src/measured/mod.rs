//! Measurements of a real path, converted to the terms of the analysis.
//!
//! | input | module |
//! | --- | --- |
//! | `ss -tin` | [`ss`] |
//! | `ping` | [`ping`] |
//! | `iperf3 --json` | [`iperf3`] |
//! | a capture, pcap or pcapng | [`pcap`] |
//! | the metrics of a running proxy | [`metrics`] |
//!
//! Each reader reports what the measurement does not contain, and what was assumed instead. Inputs
//! are untrusted: every reader limits the size, and no input causes a panic.

mod advice;
pub mod iperf3;
pub mod metrics;
pub mod pcap;
pub mod ping;
pub mod ss;
mod trace;

use midspan_link::QueueLimit;
use midspan_model::path::{Hop, Path as Hops};
use midspan_path::HostSettings;
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use thiserror::Error;

pub use self::advice::MeasuredPlan;
use crate::PlanError;
use crate::data_path::{DataPath, PACKET};

/// Largest text that is read: 64 MiB.
pub const LARGEST_TEXT: usize = 64 << 20;

/// Why an input could not be used.
#[derive(Debug, Error)]
pub enum MeasuredError {
    /// It does not have the expected format.
    #[error("this is not the output of {program}: {what}")]
    Format {
        /// The program that should have written it.
        program: &'static str,
        /// The error.
        what: String,
    },
    /// It has no connection with data.
    #[error("it contains no TCP connection with data: {hint}")]
    Empty {
        /// The remedy.
        hint: &'static str,
    },
    /// It is too large.
    #[error("larger than {limit} bytes: cut it, or take a shorter measurement")]
    TooLarge {
        /// Largest number of bytes.
        limit: usize,
    },
    /// It could not be read.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

/// A part of the path that was measured separately.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stretch {
    /// The node at its far end, in the direction of the data.
    pub end: String,
    /// Round trip without queueing, in seconds.
    pub round_trip: Option<f64>,
    /// Loss per packet.
    pub loss: Option<f64>,
}

/// The measurement of one direction of data.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// The connection or host.
    pub name: String,
    /// In order from the sender of the data; at least one.
    pub stretches: Vec<Stretch>,
    /// The throughput of the connection, in bit/s of user data.
    pub throughput: Option<f64>,
    /// The highest rate that was seen, in bit/s; the path's rate is at least this.
    pub peak: Option<f64>,
    /// Mean round trip, queueing included, in seconds.
    pub mean_round_trip: Option<f64>,
    /// Data bytes of a full segment.
    pub segment: Option<u32>,
    /// Data segments for each ACK.
    pub packets_per_ack: Option<f64>,
    /// The sender's congestion control.
    pub congestion_control: Option<String>,
    /// Largest window that the receiver offered, in bytes.
    pub receive_window: Option<u64>,
    /// The shares of the sender's busy time in which it was limited by the receiver's window, and
    /// by its own send buffer.
    pub limited: Option<[f64; 2]>,
    /// The values that the measurement does not contain, in one sentence each.
    pub untold: Vec<String>,
    /// The assumptions in place of these values, in one sentence each.
    pub assumed: Vec<String>,
}

impl Measured {
    /// The measured path as a unidirectional path for the analysis. `rate` is that of its slowest link, if the
    /// user stated it.
    ///
    /// # Errors
    /// No round trip was measured.
    pub fn data_path(&self, rate: Option<BitRate>) -> Result<DataPath, PlanError> {
        let mut assumptions = self.assumed.clone();
        let mut own_losses = false;
        let rate = match (rate, self.peak.or(self.throughput)) {
            (Some(rate), _) => rate,
            (None, Some(seen)) if self.filled_its_queue() => {
                own_losses = true;
                assumptions.push(
                    "the queue before the slowest link was full at times, because the round trip \
                     grew: the rate of the link is the highest rate seen, and the losses are \
                     those of this queue"
                        .to_owned(),
                );
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
                let rate = (seen * f64::from(PACKET) / f64::from(PACKET - 52)) as u64;
                BitRate::from_bits_per_second(rate).unwrap_or(crate::data_path::NO_LIMIT)
            }
            (None, seen) => {
                assumptions.push(match seen {
                    Some(seen) => format!(
                        "no link limits the rate; {:.3} Mbit/s were seen (`--rate` sets the rate of \
                         the slowest link)",
                        seen / 1e6
                    ),
                    None => "no link limits the rate (`--rate` sets the rate of the slowest link)".to_owned(),
                });
                crate::data_path::NO_LIMIT
            }
        };
        let mut hops = Vec::new();
        for stretch in &self.stretches {
            let round_trip = stretch.round_trip.ok_or(PlanError::NoRoundTrip)?;
            let loss = stretch.loss.filter(|_| !own_losses).unwrap_or(0.0);
            hops.push(Hop {
                rate,
                round_trip: span(round_trip),
                loss: Probability::from_f64(loss.clamp(0.0, 1.0)).unwrap_or(Probability::ONE),
                return_rate: None,
                queue: None,
            });
        }
        let ends = self.stretches.iter().map(|stretch| stretch.end.clone());
        Ok(DataPath {
            upload: false,
            nodes: std::iter::once("sender".to_owned()).chain(ends).collect(),
            links: (1..=hops.len())
                .map(|part| format!("part {part}"))
                .collect(),
            overheads: vec![0; hops.len()],
            queues: vec![QueueLimit::default(); hops.len()],
            hops: Hops::new(hops)?,
            proxies: Vec::new(),
            sender: HostSettings {
                congestion_control: self.congestion_control.clone(),
                ..HostSettings::default()
            },
            receiver: HostSettings {
                // The maximum of autotuning is twice the window.
                receive_buffer: self
                    .receive_window
                    .map(|window| ByteSize::from_bytes(window.saturating_mul(2))),
                ..HostSettings::default()
            },
            headers: self
                .segment
                .and_then(|segment| PACKET.checked_sub(segment))
                .filter(|headers| (40..=120).contains(headers))
                .unwrap_or(52),
            assumptions,
        })
    }
}

impl Measured {
    /// Whether the mean round trip shows queueing: at least 1.5 times the shortest one, and at
    /// least a millisecond more.
    fn filled_its_queue(&self) -> bool {
        let least: Option<f64> = self.stretches.iter().map(|part| part.round_trip).sum();
        match (self.mean_round_trip, least) {
            (Some(mean), Some(least)) => mean > 1.5 * least && mean > least + 0.001,
            _ => false,
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
fn span(seconds: f64) -> TimeSpan {
    TimeSpan::from_nanoseconds((seconds.max(0.0) * 1e9) as u64)
}

fn check_size(text: &str) -> Result<(), MeasuredError> {
    if text.len() > LARGEST_TEXT {
        return Err(MeasuredError::TooLarge {
            limit: LARGEST_TEXT,
        });
    }
    Ok(())
}

/// No measurement has a larger number, in any unit; sums and products of smaller numbers are
/// finite.
const LARGEST_NUMBER: f64 = 1e18;

/// A number that a measurement can contain.
fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().and_then(plausible)
}

/// `value`, unless it is negative or absurdly large.
fn plausible(value: f64) -> Option<f64> {
    (0.0..=LARGEST_NUMBER).contains(&value).then_some(value)
}

/// `part` divided by `whole`, 0…1; `None` if `whole` is zero.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).clamp(0.0, 1.0))
}

/// A text of the input, made safe for display.
fn shown(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .take(80)
        .collect()
}
