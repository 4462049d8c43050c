//! The analysis of a unidirectional path ([`DataPath`]) with certain proxies: throughput, legs, completion
//! times.

use midspan_model::completion::{self, Start};
use midspan_model::leg::Limit;
use midspan_model::overlay::{self, Analysis, ChainedLeg, Outcome};
use midspan_units::ByteSize;

use crate::PlanError;
use crate::data_path::{DataPath, ProxyOnPath};

/// The transfer sizes for which completion times are computed.
pub const SIZES: [ByteSize; 3] = [
    ByteSize::from_bytes(100_000),
    ByteSize::from_bytes(1_000_000),
    ByteSize::from_bytes(10_000_000),
];

/// The analysis of a unidirectional path with certain proxies.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Whether the data goes from client to server.
    pub upload: bool,
    /// The proxies.
    pub proxies: Vec<ProxyOnPath>,
    /// The legs, in order from the sender of the data.
    pub legs: Vec<ChainedLeg>,
    /// The names of the legs: "server to gateway".
    pub leg_names: Vec<String>,
    /// The initial windows of the legs' senders, in segments.
    pub initial_windows: Vec<u32>,
    /// Throughput of the chain and of its legs.
    pub outcome: Outcome,
    /// Completion times of [`SIZES`] in seconds, from the SYN; `None` if no data arrives.
    pub completion: [Option<f64>; 3],
}

impl Answer {
    /// Analyses `data_path` with `proxies`; an empty list is the connection end to end.
    ///
    /// # Errors
    /// A position is no node between the two hosts, or the positions do not rise.
    pub fn new(data_path: &DataPath, proxies: &[ProxyOnPath]) -> Result<Self, PlanError> {
        let legs = data_path.legs(proxies)?;
        let outcome = overlay::analyse(&legs, &Analysis::default())?;
        let initial_windows = data_path.initial_windows(proxies);
        let completion = SIZES
            .map(|size| completion_time(data_path.upload, &legs, &initial_windows, &outcome, size));
        let node = |position: usize| data_path.nodes.get(position).cloned().unwrap_or_default();
        let mut ends: Vec<usize> = vec![0];
        ends.extend(proxies.iter().map(|proxy| proxy.position));
        ends.push(data_path.links.len());
        let leg_names = ends
            .windows(2)
            .map(|pair| format!("{} to {}", node(pair[0]), node(pair[1])))
            .collect();
        Ok(Self {
            upload: data_path.upload,
            proxies: proxies.to_vec(),
            legs,
            leg_names,
            initial_windows,
            outcome,
            completion,
        })
    }

    /// Seconds from the SYN until `size` has arrived; `None` if no data arrives.
    #[must_use]
    pub fn completion_time(&self, size: ByteSize) -> Option<f64> {
        let (legs, windows) = (&self.legs, &self.initial_windows);
        completion_time(self.upload, legs, windows, &self.outcome, size)
    }

    /// Sizes from 10 KB to 100 MB in bytes, and the completion time of each in seconds; empty if no
    /// data arrives.
    #[must_use]
    pub fn transfer_curve(&self) -> Vec<(f64, f64)> {
        (0..=40)
            .filter_map(|step| {
                let size = 1e4 * libm::pow(10.0, f64::from(step) / 10.0);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most 10⁸.
                let bytes = ByteSize::from_bytes(size as u64);
                Some((size, self.completion_time(bytes)?))
            })
            .collect()
    }

    /// Bit/s of user data, end to end.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.outcome.throughput.bits_per_second()
    }

    /// The leg that is the slowest alone.
    #[must_use]
    pub fn slowest_leg(&self) -> &str {
        self.leg_names
            .get(self.outcome.slowest)
            .map_or("", String::as_str)
    }

    /// The limit of the slowest leg, in words.
    #[must_use]
    pub fn limit(&self) -> &'static str {
        limit_name(self.outcome.limit())
    }
}

/// A limit in one or two words.
#[must_use]
pub const fn limit_name(limit: Limit) -> &'static str {
    match limit {
        Limit::Loss => "loss",
        Limit::Bandwidth => "bandwidth",
        Limit::ReceiveBuffer => "receive window",
        Limit::SendBuffer => "send buffer",
        Limit::Acknowledgements => "ACKs",
    }
}

/// From the SYN to the last byte. An upload needs no request before it.
fn completion_time(
    upload: bool,
    legs: &[ChainedLeg],
    initial_windows: &[u32],
    outcome: &Outcome,
    size: ByteSize,
) -> Option<f64> {
    let plain: Vec<_> = legs.iter().map(|chained| chained.leg).collect();
    let time = completion::session_time(&plain, initial_windows, outcome, size, &Start::default())?;
    let request: f64 = plain.iter().map(|leg| leg.section.round_trip() / 2.0).sum();
    Some(if upload { time - request } else { time })
}
