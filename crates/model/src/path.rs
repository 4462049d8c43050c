//! A path in the analysis: a chain of hops, divided into sections.

use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

use crate::ModelError;

/// Largest number of hops of a [`Path`].
pub const MOST_HOPS: usize = 1024;

/// One link of a path, with the properties that the analysis needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Rate in the direction of the data, headers included.
    pub rate: BitRate,
    /// Round-trip delay. May be zero.
    pub round_trip: TimeSpan,
    /// Loss per packet in the direction of the data, 0…1.
    pub loss: Probability,
    /// Rate in the direction of the ACKs; `None` if it is never the limit.
    pub return_rate: Option<BitRate>,
    /// Room for packets that wait before the link, in bytes; `None` if it is unknown or never the
    /// limit. Only [`crate::window`] uses it.
    pub queue: Option<ByteSize>,
}

/// A chain of 1 to [`MOST_HOPS`] hops, from the sender to the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Vec<Hop>);

/// A part of a path that one leg crosses, with its hops combined.
///
/// Rate: the lowest (Maki §III B, ρ″). Delay: the sum. Loss: p = 1 − ∏(1 − pₕ). Queue: that before
/// the slowest hop, where packets wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Section {
    rate: f64,
    round_trip: f64,
    loss: f64,
    return_rate: Option<f64>,
    queue: Option<f64>,
}

impl Path {
    /// A path of `hops`.
    ///
    /// # Errors
    /// [`ModelError::Links`] if there are no hops, or too many.
    pub fn new(hops: Vec<Hop>) -> Result<Self, ModelError> {
        if hops.is_empty() || hops.len() > MOST_HOPS {
            return Err(ModelError::Links {
                found: hops.len(),
                most: MOST_HOPS,
            });
        }
        Ok(Self(hops))
    }

    /// The hops, from the sender to the receiver.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.0
    }

    /// Number of places where a proxy can be: one less than hops.
    #[must_use]
    pub fn places(&self) -> usize {
        self.0.len() - 1
    }

    /// The whole path as one section.
    #[must_use]
    pub fn whole(&self) -> Section {
        Section::joining(&self.0)
    }

    /// The sections between proxies at `positions`. Position *i* is after hop *i*, so the first possible
    /// position is 1. Without positions, the result is one section.
    ///
    /// # Errors
    /// [`ModelError::Positions`] if a position is no place of the path, or the positions do not
    /// rise.
    pub fn split(&self, positions: &[usize]) -> Result<Vec<Section>, ModelError> {
        let mut sections = Vec::with_capacity(positions.len() + 1);
        let mut start = 0;
        for &position in positions {
            if position <= start || position > self.places() {
                return Err(ModelError::Positions {
                    places: self.places(),
                });
            }
            sections.push(Section::joining(&self.0[start..position]));
            start = position;
        }
        sections.push(Section::joining(&self.0[start..]));
        Ok(sections)
    }

    /// The section of hops `from..to`, which must be a valid, non-empty range.
    pub(crate) fn section(&self, from: usize, to: usize) -> Section {
        Section::joining(&self.0[from..to])
    }
}

impl Section {
    /// A section of one hop.
    #[must_use]
    pub fn of(hop: &Hop) -> Self {
        Self::joining(std::slice::from_ref(hop))
    }

    /// The section of `hops`, which must not be empty.
    pub(crate) fn joining(hops: &[Hop]) -> Self {
        let slowest = |rates: &mut dyn Iterator<Item = BitRate>| {
            rates.min().map(|rate| rate.bits_per_second() as f64)
        };
        Self {
            rate: slowest(&mut hops.iter().map(|hop| hop.rate)).unwrap_or(0.0),
            round_trip: hops.iter().map(|hop| hop.round_trip.as_seconds()).sum(),
            // 1 − ∏(1 − pₕ), computed hop by hop, so that small losses keep their precision.
            loss: hops.iter().fold(0.0, |loss, hop| {
                let lost_here = hop.loss.as_f64();
                (loss + lost_here - loss * lost_here).clamp(0.0, 1.0)
            }),
            return_rate: slowest(&mut hops.iter().filter_map(|hop| hop.return_rate)),
            queue: hops
                .iter()
                .min_by_key(|hop| hop.rate)
                .and_then(|hop| hop.queue)
                .map(|queue| queue.bytes() as f64),
        }
    }

    /// Rate of the slowest hop in bit/s, headers included.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Round-trip delay in seconds.
    #[must_use]
    pub const fn round_trip(&self) -> f64 {
        self.round_trip
    }

    /// Loss per packet, 0…1.
    #[must_use]
    pub const fn loss(&self) -> f64 {
        self.loss
    }

    /// Rate of the slowest hop in the direction of the ACKs in bit/s, if it matters.
    #[must_use]
    pub const fn return_rate(&self) -> Option<f64> {
        self.return_rate
    }

    /// Bytes that may wait before the slowest hop, if known.
    #[must_use]
    pub const fn queue(&self) -> Option<f64> {
        self.queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(rate: u64, milliseconds: u64, loss: f64) -> Hop {
        Hop {
            rate: BitRate::from_bits_per_second(rate).unwrap(),
            round_trip: TimeSpan::from_milliseconds(milliseconds),
            loss: Probability::from_f64(loss).unwrap(),
            return_rate: None,
            queue: None,
        }
    }

    #[test]
    fn a_section_has_the_least_rate_the_sum_of_delays_and_the_joint_loss() {
        let path = Path::new(vec![hop(5, 10, 0.1), hop(3, 20, 0.5), hop(9, 1, 0.0)]).unwrap();
        let whole = path.whole();
        assert_eq!(whole.rate(), 3.0);
        assert!((whole.round_trip() - 0.031).abs() < 1e-12);
        assert!((whole.loss() - 0.55).abs() < 1e-12);
    }

    #[test]
    fn positions_outside_the_path_or_out_of_order_are_refused() {
        let path = Path::new(vec![hop(1, 1, 0.0); 3]).unwrap();
        assert_eq!(path.split(&[1, 2]).unwrap().len(), 3);
        assert_eq!(path.split(&[]).unwrap().len(), 1);
        for positions in [&[0][..], &[3], &[2, 1], &[1, 1]] {
            assert_eq!(
                path.split(positions),
                Err(ModelError::Positions { places: 2 })
            );
        }
        assert!(Path::new(Vec::new()).is_err());
    }
}
