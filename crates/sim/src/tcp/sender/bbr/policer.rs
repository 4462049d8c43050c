//! The long-term bandwidth of a path with a policer.
//!
//! A policer drops packets that exceed its rate, after a burst that it lets pass. BBR assumes a policer after
//! two intervals in a row with the same rate. Each interval lasts 4 to 16 rounds, begins and ends with a loss,
//! and loses at least one segment for about five that are delivered. BBR then sends at this rate for 48
//! rounds, without probing for more (Linux: `bbr_lt_bw_sampling`).

use midspan_units::{Time, TimeSpan};

use super::bandwidth::Bandwidth;

/// Least number of rounds of an interval, and the number above which it is too long.
const LEAST_ROUNDS: u32 = 4;
const MOST_ROUNDS: u32 = 4 * LEAST_ROUNDS;
/// An interval has many losses if at least this many 256ths of the delivered segments were lost.
const LOSSES: u64 = 50;
/// Two rates are the same if they differ by at most this many 256ths of the first, or by at most
/// this many bytes per second.
const DIFFERENCE: u32 = 256 / 8;
const DIFFERENCE_BYTES: u64 = 4000 / 8;
/// The rate holds for this many rounds.
const ROUNDS: u32 = 48;
/// Longer intervals are not used.
const LONGEST: TimeSpan = TimeSpan::from_milliseconds((u32::MAX / 1000) as u64);

/// Looks for a policer.
#[derive(Debug, Clone, Default)]
pub(super) struct Policer {
    /// The rate of the last interval, or of the policer.
    bandwidth: Option<Bandwidth>,
    is_found: bool,
    is_sampling: bool,
    /// Rounds of this interval, or since the policer was found.
    rounds: u32,
    /// Totals at the start of the interval.
    start: Totals,
}

/// Totals of a connection, in segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// When `delivered` last grew.
    pub(super) at: Time,
}

/// What an ACK shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) totals: Totals,
    /// Whether a round begins.
    pub(super) round_start: bool,
    /// Whether BBR probes for bandwidth.
    pub(super) is_probing: bool,
    pub(super) has_losses: bool,
    pub(super) is_application_limited: bool,
    /// Bytes of data in a segment.
    pub(super) segment: u64,
}

/// What the sender must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Nothing,
    /// A policer was found: stop probing.
    Found,
    /// Its rate has held long enough: probe again.
    Over,
}

impl Policer {
    /// The policer's rate, while it holds.
    pub(super) fn bandwidth(&self) -> Option<Bandwidth> {
        self.bandwidth.filter(|_| self.is_found)
    }

    pub(super) const fn reset(&mut self, totals: Totals) {
        self.bandwidth = None;
        self.is_found = false;
        self.is_sampling = false;
        self.begin(totals);
    }

    const fn begin(&mut self, totals: Totals) {
        self.start = totals;
        self.rounds = 0;
    }

    pub(super) fn handle(&mut self, seen: &Observation) -> Verdict {
        if self.is_found {
            let counts = seen.is_probing && seen.round_start;
            self.rounds += u32::from(counts);
            if counts && self.rounds >= ROUNDS {
                self.reset(seen.totals);
                return Verdict::Over;
            }
            return Verdict::Nothing;
        }
        if !self.is_sampling {
            // Before the first loss, the policer may let a burst pass.
            if !seen.has_losses {
                return Verdict::Nothing;
            }
            self.begin(seen.totals);
            self.is_sampling = true;
        }
        if seen.is_application_limited {
            self.reset(seen.totals);
            return Verdict::Nothing;
        }
        self.rounds += u32::from(seen.round_start);
        if self.rounds < LEAST_ROUNDS {
            return Verdict::Nothing;
        }
        if self.rounds > MOST_ROUNDS {
            self.reset(seen.totals);
            return Verdict::Nothing;
        }
        // The interval ends with a loss, when the policer lets nothing more pass.
        if seen.has_losses {
            self.end_interval(seen)
        } else {
            Verdict::Nothing
        }
    }

    fn end_interval(&mut self, seen: &Observation) -> Verdict {
        let lost = seen.totals.lost - self.start.lost;
        let delivered = seen.totals.delivered - self.start.delivered;
        if delivered == 0 || lost * 256 < LOSSES * delivered {
            return Verdict::Nothing;
        }
        let span = seen.totals.at.since(self.start.at);
        if span < TimeSpan::from_milliseconds(1) {
            return Verdict::Nothing;
        }
        if span >= LONGEST {
            self.reset(seen.totals);
            return Verdict::Nothing;
        }
        let bandwidth = Bandwidth::of(delivered, span);
        if let Some(before) = self.bandwidth {
            let difference = bandwidth.difference(before);
            if difference <= before.times(DIFFERENCE)
                || difference.bytes_per_second(seen.segment) <= DIFFERENCE_BYTES
            {
                self.bandwidth = Some(bandwidth.mean(before));
                self.is_found = true;
                self.rounds = 0;
                return Verdict::Found;
            }
        }
        self.bandwidth = Some(bandwidth);
        self.begin(seen.totals);
        Verdict::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 100 ms with a loss each; of 100 segments, `lost` are lost.
    fn rounds(policer: &mut Policer, from: u64, count: u64, lost: u64) -> Vec<Verdict> {
        let verdicts = (from..from + count).map(|round| {
            policer.handle(&Observation {
                totals: Totals {
                    delivered: round * (100 - lost),
                    lost: round * lost,
                    at: Time::ZERO + TimeSpan::from_milliseconds(100 * round),
                },
                round_start: true,
                is_probing: true,
                has_losses: lost > 0,
                is_application_limited: false,
                segment: 1448,
            })
        });
        verdicts.collect()
    }

    #[test]
    fn two_lossy_intervals_of_the_same_rate_show_a_policer() {
        let mut policer = Policer::default();
        let verdicts = rounds(&mut policer, 1, 8, 25);
        assert_eq!(verdicts.last(), Some(&Verdict::Found));
        assert!(verdicts[..7].iter().all(|one| *one == Verdict::Nothing));
        // 75 segments in 100 ms.
        let expected = Bandwidth::of(750, TimeSpan::from_seconds(1));
        assert_eq!(policer.bandwidth(), Some(expected));
        // It holds for 48 rounds.
        let later = rounds(&mut policer, 9, 48, 0);
        assert_eq!(later.iter().position(|one| *one == Verdict::Over), Some(47));
        assert_eq!(policer.bandwidth(), None);
    }

    #[test]
    fn few_losses_show_no_policer() {
        let mut policer = Policer::default();
        let verdicts = rounds(&mut policer, 1, 100, 10);
        assert!(verdicts.iter().all(|one| *one == Verdict::Nothing));
    }
}
