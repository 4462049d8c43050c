//! The flows of all routes by their size: the goodput of the latest ones, split and direct.

use std::collections::VecDeque;

use midspan_units::{BitRate, Time, TimeSpan};

/// Largest number of remembered flows of each kind and size over all routes.
const RECENT_OF_ALL: usize = 101;
/// Upper bounds, in bytes, of the sizes by which flows are compared; a last class has no upper
/// bound.
pub const SIZES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// Flows of one size, over all routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeGain {
    /// Flows that were split, since the start.
    pub split_flows: u64,
    /// Flows of the control group that were measured, since the start.
    pub direct_flows: u64,
    /// Median goodput of the latest split flows.
    pub split: Option<BitRate>,
    /// Median goodput of the latest flows of the control group.
    pub direct: Option<BitRate>,
}

/// Places in arrays of two.
pub(super) const SPLIT: usize = 0;
pub(super) const DIRECT: usize = 1;

/// Flows of all routes, by size: the memory of one [`Gains`](super::Gains), or of all parts of a divided one.
#[derive(Debug, Clone)]
pub struct FlowsBySize([[LatestFlows; 2]; SIZES.len() + 1]);

/// The latest flows of one size and kind: when each ended, and its goodput in bit/s; and the number
/// of all.
#[derive(Debug, Clone)]
struct LatestFlows {
    flows: VecDeque<(Time, u64)>,
    count: u64,
}

impl Default for FlowsBySize {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowsBySize {
    /// No flows.
    #[must_use]
    pub const fn new() -> Self {
        const NONE: LatestFlows = LatestFlows {
            flows: VecDeque::new(),
            count: 0,
        };
        Self([const { [NONE; 2] }; SIZES.len() + 1])
    }

    /// The measurements by size: up to each of [`SIZES`], and above.
    #[must_use]
    pub fn gains(&self) -> [SizeGain; SIZES.len() + 1] {
        self.0.each_ref().map(|[split, direct]| SizeGain {
            split_flows: split.count,
            direct_flows: direct.count,
            split: split.median().and_then(BitRate::from_bits_per_second),
            direct: direct.median().and_then(BitRate::from_bits_per_second),
        })
    }

    /// Counts a flow; returns its goodput in bit/s, if it carried anything and lasted at all.
    pub(super) fn count(
        &mut self,
        now: Time,
        kind: usize,
        bytes: u64,
        lasted: TimeSpan,
    ) -> Option<u64> {
        if bytes == 0 || lasted == TimeSpan::ZERO {
            return None;
        }
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        let goodput = u64::try_from(bits / u128::from(lasted.nanoseconds())).unwrap_or(u64::MAX);
        let size = SIZES.partition_point(|bound| *bound < bytes);
        if let Some(kinds) = self.0.get_mut(size) {
            let latest = &mut kinds[kind];
            latest.count += 1;
            latest.flows.push_back((now, goodput));
            latest.keep_newest();
        }
        Some(goodput)
    }

    /// Adds the flows of another part. Of those, too, only the newest stay.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, part) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            sum.count += part.count;
            sum.flows.extend(&part.flows);
            sum.flows.make_contiguous().sort_unstable();
            sum.keep_newest();
        }
    }
}

impl LatestFlows {
    fn keep_newest(&mut self) {
        let surplus = self.flows.len().saturating_sub(RECENT_OF_ALL);
        self.flows.drain(..surplus);
    }

    fn median(&self) -> Option<u64> {
        median(self.flows.iter().map(|(_, goodput)| *goodput))
    }
}

/// The median; of an even number, the lower one of the two in the middle.
pub(super) fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = values.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn the_newest_flows_of_all_parts_count_and_no_others() {
        let mut whole = FlowsBySize::new();
        let mut parts = [FlowsBySize::new(), FlowsBySize::new(), FlowsBySize::new()];
        for number in 0..1000_u64 {
            // Times differ, so that the newest are certain; goodputs rise and fall.
            let lasted = TimeSpan::from_milliseconds(1 + number * 7 % 500);
            let kind = usize::from(number % 5 == 0);
            for flows in [&mut whole, &mut parts[(number * 7 % 3) as usize]] {
                flows.count(at(number), kind, 50_000, lasted);
            }
        }
        let mut all = FlowsBySize::new();
        parts.iter().for_each(|part| all.add(part));
        assert_eq!(all.gains(), whole.gains());
        assert_eq!(all.gains()[1].split_flows, 800);
        assert_eq!(all.0[1][SPLIT].flows.len(), RECENT_OF_ALL);
    }

    #[test]
    fn a_flow_without_data_or_time_does_not_count() {
        let mut flows = FlowsBySize::new();
        assert_eq!(
            flows.count(at(1), SPLIT, 0, TimeSpan::from_seconds(1)),
            None
        );
        assert_eq!(flows.count(at(1), SPLIT, 9, TimeSpan::ZERO), None);
        assert_eq!(flows.gains(), FlowsBySize::default().gains());
    }
}
