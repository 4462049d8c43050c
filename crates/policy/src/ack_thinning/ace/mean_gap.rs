//! The mean gap between arriving data packets; the ATO is a multiple of it (Tam §5.1).

use midspan_units::TimeSpan;

/// An exponential mean: each packet has a weight of 1/8, as in a sender's smoothed round-trip time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeanGap(Option<TimeSpan>);

impl MeanGap {
    /// `segments` packets arrived at once, `since_last` after the previous ones.
    pub fn handle_arrival(&mut self, since_last: TimeSpan, segments: u32) {
        let gap = since_last / u64::from(segments.max(1));
        let Some(mut mean) = self.0 else {
            self.0 = Some(gap);
            return;
        };
        // After 64 equal gaps, almost nothing of the old mean is left (0.02 %).
        for _ in 0..segments.min(64) {
            mean = mean * 7 / 8 + gap / 8;
        }
        self.0 = Some(mean);
    }

    /// The mean; `None` until two arrivals were seen.
    pub const fn span(self) -> Option<TimeSpan> {
        self.0
    }
}
