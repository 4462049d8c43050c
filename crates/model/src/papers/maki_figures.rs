//! Maki et al.: Figs 8–11 by analysis, as series of points.
//!
//! The figures' axes and most of their settings are not in the text. The values chosen here are
//! described at each function, and in `docs/papers/maki.md`.

use midspan_units::{ByteSize, Probability, TimeSpan};

use super::maki::{figure_7_path, figure_10_network, split, unsplit};
use crate::ModelError;
use crate::overlay::{Outcome, Reading};

/// A line of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The name of the line in the legend.
    pub name: String,
    /// Pairs of x and y.
    pub points: Vec<(f64, f64)>,
}

/// Losses that Figs 8–10 vary over.
pub const LOSSES: [f64; 9] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1];
/// Delays of the WAN in Fig. 8, in ms.
pub const FIGURE_8_DELAYS: [u64; 3] = [5, 50, 500];
/// Delays of LAN2 in Figs 9 and 10, in ms.
pub const LAN2_DELAYS: [u64; 4] = [5, 50, 100, 500];
/// Receive buffers of Fig. 11, in KB.
pub const FIGURE_11_RECEIVE_BUFFERS: [u32; 3] = [16, 64, 512];
/// Send buffers of Fig. 11, in KB.
pub const FIGURE_11_SEND_BUFFERS: [u32; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// Receive buffers of Figs 9 and 10: 64 KB, six times the need of a leg.
pub const RECEIVE_BUFFER: ByteSize = ByteSize::from_bytes(64_000);
/// Send buffers of Figs 9 and 10: the 10 KB that a leg alone needs.
const SEND_BUFFER: ByteSize = ByteSize::from_bytes(10_000);

/// Loss and delay one way of a network.
pub type Network = (Probability, TimeSpan);

fn network(loss: f64, milliseconds: u64) -> Network {
    let loss = Probability::from_f64(loss).unwrap_or(Probability::ONE);
    (loss, TimeSpan::from_milliseconds(milliseconds))
}

/// LAN1 with p = 0.001 and 5 ms, a WAN of `loss` and `milliseconds`, LAN2 with p = 0.01 and 50 ms:
/// Fig. 8.
#[must_use]
pub fn figure_8_networks(loss: f64, milliseconds: u64) -> [Network; 3] {
    [
        network(0.001, 5),
        network(loss, milliseconds),
        network(0.01, 50),
    ]
}

/// LAN1 and WAN with p = 0.01 and 50 ms, a LAN2 of `loss` and `milliseconds`: Figs 9 and 10.
#[must_use]
pub fn lan2_networks(loss: f64, milliseconds: u64) -> [Network; 3] {
    let others = figure_10_network();
    [others, others, network(loss, milliseconds)]
}

/// Fig. 8: throughput in bit/s as a function of the WAN's loss, for each of the WAN's delays. LAN1
/// with p = 0.001 and 5 ms, LAN2 with p = 0.01 and 50 ms, buffers that are no limit.
///
/// # Errors
/// None: the paths are constants.
pub fn figure_8(reading: Reading) -> Result<Vec<Line>, ModelError> {
    let large = ByteSize::from_bytes(4_000_000);
    lines(&FIGURE_8_DELAYS, |loss, delay| {
        let path = figure_7_path(figure_8_networks(loss, delay))?;
        let outcome = split(&path, reading, large, large)?;
        Ok(outcome.throughput.bits_per_second())
    })
}

/// Fig. 8: the loss of the WAN from which on it is the slowest of the three legs, so that it
/// determines the throughput, for a delay of `milliseconds`.
///
/// # Errors
/// None: the paths are constants.
pub fn figure_8_border(milliseconds: u64) -> Result<f64, ModelError> {
    let large = ByteSize::from_bytes(4_000_000);
    let (mut low, mut high) = (1e-6_f64, 1.0_f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        let path = figure_7_path(figure_8_networks(middle, milliseconds))?;
        let outcome = split(&path, Reading::default(), large, large)?;
        if outcome.slowest == 1 {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

/// Fig. 9: the ratio of split to unsplit throughput as a function of LAN2's loss, for each of
/// LAN2's delays.
///
/// # Errors
/// None: the paths are constants.
pub fn figure_9(reading: Reading) -> Result<Vec<Line>, ModelError> {
    lines(&LAN2_DELAYS, |loss, delay| {
        let path = figure_7_path(lan2_networks(loss, delay))?;
        let split = split(&path, reading, RECEIVE_BUFFER, SEND_BUFFER)?.throughput;
        Ok(split.ratio(unsplit(&path)).unwrap_or(0.0))
    })
}

/// Fig. 10: the ratio of throughput to expected throughput, Eq. (4), as a function of LAN2's loss,
/// for each of LAN2's delays.
///
/// # Errors
/// None: the paths are constants.
pub fn figure_10(reading: Reading) -> Result<Vec<Line>, ModelError> {
    lines(&LAN2_DELAYS, |loss, delay| {
        let path = figure_7_path(lan2_networks(loss, delay))?;
        split(&path, reading, RECEIVE_BUFFER, SEND_BUFFER).map(|outcome| kept(&outcome))
    })
}

/// Fig. 11: the ratio of throughput to expected throughput as a function of the send buffer in
/// bytes, for each receive buffer; three equal networks.
///
/// # Errors
/// None: the paths are constants.
pub fn figure_11(reading: Reading) -> Result<Vec<Line>, ModelError> {
    let path = figure_7_path([figure_10_network(); 3])?;
    let kilobytes = |count: u32| ByteSize::from_bytes(u64::from(count) * 1000);
    FIGURE_11_RECEIVE_BUFFERS
        .map(|receive| {
            let points = FIGURE_11_SEND_BUFFERS.map(|send| {
                let outcome = split(&path, reading, kilobytes(receive), kilobytes(send))?;
                Ok((f64::from(send) * 1000.0, kept(&outcome)))
            });
            Ok(Line {
                name: format!("receive buffer {receive} KB"),
                points: points.into_iter().collect::<Result<_, ModelError>>()?,
            })
        })
        .into_iter()
        .collect()
}

fn kept(outcome: &Outcome) -> f64 {
    1.0 - outcome.coupling_loss()
}

/// A line over [`LOSSES`] for each delay in ms.
fn lines(
    delays: &[u64],
    at: impl Fn(f64, u64) -> Result<f64, ModelError>,
) -> Result<Vec<Line>, ModelError> {
    delays
        .iter()
        .map(|&delay| {
            let points = LOSSES.iter().map(|&loss| Ok((loss, at(loss, delay)?)));
            Ok(Line {
                name: format!("{delay} ms"),
                points: points.collect::<Result<_, ModelError>>()?,
            })
        })
        .collect()
}
