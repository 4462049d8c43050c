//! Which packets are lost: the patterns that a link can have.

use midspan_units::{Probability, Time};
use rand_pcg::rand_core::Rng;

use crate::loss::{Bernoulli, LossModel};
use crate::seed::Stream;

/// How packets are lost on one direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LossPattern {
    /// Each packet independently, with the probability of the link's configuration.
    #[default]
    Independent,
    /// Exactly these packets, counted from 1 in the order in which the link sends them, whatever
    /// their content.
    Scripted(Vec<u64>),
    /// Each bit is wrong independently with this probability, and one wrong bit loses the packet: 1
    /// − (1 − e)^(8·size) (Hasegawa §6.4, with the size in bits).
    PerBit(Probability),
    /// Two states, each with its own loss probability: after each packet the state may change
    /// (Gilbert, "Capacity of a Burst-Noise Channel", 1960, for `good` = 0; Elliott, "Estimates of
    /// Error Rates for Codes on Burst-Noise Channels", 1963). The probability that a schedule sets
    /// is that of a further, independent loss.
    GilbertElliott {
        /// From good to bad.
        to_bad: Probability,
        /// From bad to good.
        to_good: Probability,
        /// Loss in the good state.
        good: Probability,
        /// Loss in the bad state.
        bad: Probability,
    },
}

impl LossPattern {
    /// The share of packets of `size` bytes that are lost in the long run. `configured` is the
    /// probability of a link's configuration, for [`Self::Independent`]. For a script the result is
    /// zero, because a script loses single packets, which are no share in the long run.
    ///
    /// With two states, the share of packets that find the bad one is `to_bad / (to_bad + to_good)`
    /// (Gilbert 1960). If no state is ever left, every packet finds the good state, which is the first.
    /// Losses that a schedule adds are not counted.
    #[must_use]
    pub fn mean(&self, configured: Probability, size: u32) -> Probability {
        match self {
            Self::Independent => configured,
            Self::Scripted(_) => Probability::ZERO,
            Self::PerBit(bit) => any_bit(*bit, size),
            Self::GilbertElliott {
                to_bad,
                to_good,
                good,
                bad,
            } => {
                let changes = to_bad.as_f64() + to_good.as_f64();
                let in_bad = match changes > 0.0 {
                    true => to_bad.as_f64() / changes,
                    false => 0.0,
                };
                let mean = good.as_f64() + in_bad * (bad.as_f64() - good.as_f64());
                Probability::from_f64(mean.clamp(0.0, 1.0)).unwrap_or(Probability::ONE)
            }
        }
    }
}

/// A [`LossPattern`] at work.
#[derive(Debug, Clone)]
pub struct LossProcess(Process);

#[derive(Debug, Clone)]
enum Process {
    /// Nothing is lost, and no number is drawn: only if that never changes.
    Never,
    Independent(Bernoulli),
    Scripted {
        lost: Vec<u64>,
        sent: u64,
    },
    PerBit {
        bit: Probability,
        /// The size of the previous packet in bytes, and the loss probability for it.
        last: (u32, Probability),
        stream: Stream,
    },
    GilbertElliott {
        leave: [Probability; 2],
        lose: [Probability; 2],
        /// Independent losses, from the link's schedule.
        further: Probability,
        bad: bool,
        stream: Stream,
    },
}

impl LossProcess {
    /// Loses packets by `pattern`, with random numbers from `stream`. `configured` is the
    /// probability of a link's configuration, for [`LossPattern::Independent`].
    #[must_use]
    pub fn new(pattern: &LossPattern, configured: Probability, stream: Stream) -> Self {
        Self(match pattern {
            LossPattern::Independent => Process::Independent(Bernoulli::new(configured, stream)),
            LossPattern::Scripted(ordinals) => {
                let mut lost = ordinals.clone();
                lost.sort_unstable_by(|one, other| other.cmp(one));
                Process::Scripted { lost, sent: 0 }
            }
            LossPattern::PerBit(bit) => Process::PerBit {
                bit: *bit,
                last: (0, Probability::ZERO),
                stream,
            },
            LossPattern::GilbertElliott {
                to_bad,
                to_good,
                good,
                bad,
            } => Process::GilbertElliott {
                leave: [*to_bad, *to_good],
                lose: [*good, *bad],
                further: Probability::ZERO,
                bad: false,
                stream,
            },
        })
    }

    /// Like [`new`](Self::new), for a link that never changes. It draws no random number if nothing
    /// can be lost.
    #[must_use]
    pub fn unchanging(pattern: &LossPattern, configured: Probability, stream: Stream) -> Self {
        match pattern {
            LossPattern::Independent if configured == Probability::ZERO => Self(Process::Never),
            _ => Self::new(pattern, configured, stream),
        }
    }
}

impl Process {
    /// Whether a packet is lost by one of the rarer patterns.
    #[inline(never)]
    fn is_lost_by_pattern(&mut self, size: u32) -> bool {
        match self {
            Self::Never | Self::Independent(_) => false,
            Self::Scripted { lost, sent } => {
                *sent += 1;
                let next = lost.last().copied() == Some(*sent);
                while lost.last().is_some_and(|ordinal| *ordinal <= *sent) {
                    lost.pop();
                }
                next
            }
            Self::PerBit { bit, last, stream } => {
                if last.0 != size {
                    *last = (size, any_bit(*bit, size));
                }
                last.1.happens(stream.next_u64())
            }
            Self::GilbertElliott {
                leave,
                lose,
                further,
                bad,
                stream,
            } => {
                let state = usize::from(*bad);
                let lost = either(lose[state], *further).happens(stream.next_u64());
                *bad ^= leave[state].happens(stream.next_u64());
                lost
            }
        }
    }
}

impl LossModel for LossProcess {
    #[inline]
    fn is_lost(&mut self, now: Time, size: u32) -> bool {
        match &mut self.0 {
            Process::Never => false,
            Process::Independent(model) => model.is_lost(now, size),
            other => other.is_lost_by_pattern(size),
        }
    }

    fn set_probability(&mut self, probability: Probability) {
        match &mut self.0 {
            Process::Independent(model) => model.set_probability(probability),
            Process::GilbertElliott { further, .. } => *further = probability,
            Process::Never | Process::Scripted { .. } | Process::PerBit { .. } => {}
        }
    }
}

/// The probability that at least one of two independent events happens.
fn either(one: Probability, other: Probability) -> Probability {
    if other == Probability::ZERO {
        return one;
    }
    let neither = (1.0 - one.as_f64()) * (1.0 - other.as_f64());
    Probability::from_f64(1.0 - neither).unwrap_or(Probability::ONE)
}

/// 1 − (1 − e)^(8·size), exact even if e is tiny.
#[cold]
#[inline(never)]
fn any_bit(bit: Probability, size: u32) -> Probability {
    let none = 8.0 * f64::from(size) * libm::log1p(-bit.as_f64());
    Probability::from_f64(-libm::expm1(none)).unwrap_or(Probability::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Direction, stream};

    fn run(pattern: &LossPattern, size: u32, packets: u32) -> Vec<bool> {
        let mut loss = LossProcess::new(
            pattern,
            Probability::ZERO,
            stream(1, "loss/test", Direction::Up),
        );
        (0..packets)
            .map(|_| loss.is_lost(Time::ZERO, size))
            .collect()
    }

    #[test]
    fn a_script_loses_what_it_names() {
        let pattern = LossPattern::Scripted(vec![4, 2, 2, 0]);
        assert_eq!(run(&pattern, 1500, 5), [false, true, false, true, false]);
    }

    #[test]
    fn a_long_packet_is_lost_more_often() {
        // e = 10⁻⁶: 1 − (1 − e)^12000 = 1.193 %.
        let bit = Probability::from_f64(1e-6).unwrap();
        assert!((any_bit(bit, 1500).as_f64() - 0.011_928_293_066).abs() < 1e-9);
        assert!(any_bit(bit, 40).as_f64() < 0.000_321);
        assert_eq!(any_bit(Probability::ZERO, 1500), Probability::ZERO);
        assert_eq!(any_bit(Probability::ONE, 1500), Probability::ONE);
        let lost = run(&LossPattern::PerBit(bit), 1500, 100_000);
        let count = lost.into_iter().filter(|lost| *lost).count();
        assert!((1_090..1_300).contains(&count), "{count}"); // 1,193 ± 3 · 34
    }

    #[test]
    fn gilbert_elliott_loses_in_runs() {
        let pattern = LossPattern::GilbertElliott {
            to_bad: "1 %".parse().unwrap(),
            to_good: "25 %".parse().unwrap(),
            good: Probability::ZERO,
            bad: Probability::ONE,
        };
        let lost = run(&pattern, 1500, 200_000);
        let count = lost.iter().filter(|lost| **lost).count();
        let runs = lost
            .windows(2)
            .filter(|pair| pair == &[false, true])
            .count();
        // The bad state holds 1/26 of the time, four packets in a row on average.
        assert!((7_000..8_400).contains(&count), "{count}");
        let mean = count as f64 / runs as f64;
        assert!((3.8..4.2).contains(&mean), "{mean}");
    }
    #[test]
    fn a_schedule_adds_a_loss_to_two_states() {
        let pattern = LossPattern::GilbertElliott {
            to_bad: "1 %".parse().unwrap(),
            to_good: "25 %".parse().unwrap(),
            good: Probability::ZERO,
            bad: Probability::ONE,
        };
        let alone = run(&pattern, 1500, 3_000);
        let stream = stream(1, "loss/test", Direction::Up);
        let mut loss = LossProcess::new(&pattern, Probability::ZERO, stream);
        let mut part = |probability: &str| -> Vec<bool> {
            loss.set_probability(probability.parse().unwrap());
            (0..1_000).map(|_| loss.is_lost(Time::ZERO, 1500)).collect()
        };
        assert_eq!(part("0 %"), alone[..1_000]);
        assert!(part("100 %").into_iter().all(|lost| lost));
        let third = part("10 %");
        let kept = third.iter().zip(&alone[2_000..]);
        assert!(kept.clone().all(|(lost, before)| *lost || !before));
        let further = kept.filter(|(lost, before)| **lost && !**before).count();
        assert!((60..140).contains(&further), "{further}"); // about 96 ± 4 · 9
    }

    #[test]
    fn the_mean_of_a_pattern_is_the_share_that_it_loses() {
        let of = |text: &str| text.parse::<Probability>().unwrap();
        let two_states = |good, bad, to_bad, to_good| LossPattern::GilbertElliott {
            to_bad: of(to_bad),
            to_good: of(to_good),
            good: of(good),
            bad: of(bad),
        };
        let packets = 1_000_000;
        for (pattern, mean) in [
            // 0.001 + 0.02 / 0.22 · (0.5 − 0.001)
            (two_states("0.1 %", "50 %", "2 %", "20 %"), 0.046_363_6),
            (two_states("1 %", "3 %", "50 %", "50 %"), 0.02),
            // The first state is the good one, and neither is ever left.
            (two_states("1 %", "50 %", "0 %", "0 %"), 0.01),
            // From the bad state no way leads back.
            (two_states("0 %", "5 %", "10 %", "0 %"), 0.05),
            (LossPattern::PerBit(of("0.000001")), 0.011_928_3),
        ] {
            let computed = pattern.mean(Probability::ZERO, 1500).as_f64();
            assert!((computed - mean).abs() < 1e-6, "{pattern:?}: {computed}");
            let lost = run(&pattern, 1500, packets);
            let lost = lost.into_iter().filter(|lost| *lost).count();
            let share = lost as f64 / f64::from(packets);
            assert!((share / mean - 1.0).abs() < 0.03, "{pattern:?}: {share}");
        }
        let independent = LossPattern::Independent.mean(of("2 %"), 1500);
        assert_eq!(independent, of("2 %"));
    }
}
