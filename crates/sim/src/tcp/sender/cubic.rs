//! CUBIC (RFC 9438): cwnd as a cubic function of the time since the last loss.
//!
//! Units are segments and seconds, as in the RFC. Restoring cwnd after a spurious time-out is not
//! modelled.

use midspan_units::{Time, TimeSpan};

/// `C`, in segments per second cubed.
const C: f64 = 0.4;
/// `β_cubic`: the share of cwnd that remains after a loss.
const BETA: f64 = 0.7;
/// `α_cubic`: makes a Reno-like flow with `β_cubic` as fast as Reno (§4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of the cubic function.
#[derive(Debug, Clone, Default)]
pub(super) struct Cubic {
    /// `W_max`; `None` before the first loss, and after a time-out.
    maximum: Option<f64>,
    /// `cwnd_prior`: cwnd at the last loss.
    prior: f64,
    epoch: Option<Epoch>,
}

/// A stage of congestion avoidance.
#[derive(Debug, Clone)]
struct Epoch {
    start: Time,
    /// `K`, in seconds.
    to_maximum: f64,
    /// `W_max` of this stage.
    maximum: f64,
    /// `W_est`: the window that Reno would have.
    estimate: f64,
    /// cwnd, with its fraction.
    window: f64,
}

impl Cubic {
    /// A loss with `under_way` bytes in flight: returns the new ssthresh in bytes.
    pub(super) fn reduce(&mut self, under_way: u64, segment: u64) -> u64 {
        let window = in_segments(under_way, segment);
        // §4.7, fast convergence: a flow whose maximum falls leaves room for others.
        let falling = self.maximum.is_some_and(|maximum| window < maximum);
        self.maximum = Some(if falling {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        });
        self.prior = window;
        self.epoch = None;
        in_bytes(window * BETA, segment)
    }

    /// §4.8: after a time-out the first stage of congestion avoidance starts from its own cwnd.
    pub(super) fn time_out(&mut self) {
        self.maximum = None;
        self.epoch = None;
    }

    /// cwnd in bytes after `acknowledged` bytes in congestion avoidance.
    pub(super) fn grow(
        &mut self,
        now: Time,
        round_trip: TimeSpan,
        acknowledged: u64,
        cwnd: u64,
        segment: u64,
    ) -> u64 {
        let acknowledged = in_segments(acknowledged, segment);
        let maximum = self.maximum;
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::new(now, in_segments(cwnd, segment), maximum));
        // §4.3: the Reno-friendly estimate.
        let alpha = if epoch.estimate >= self.prior {
            1.0
        } else {
            ALPHA
        };
        epoch.estimate += alpha * acknowledged / epoch.window;
        let elapsed = now.since(epoch.start);
        if epoch.cubic(elapsed) < epoch.estimate {
            epoch.window = epoch.window.max(epoch.estimate);
        } else {
            // §4.4 and §4.5: towards the function's value one round trip from now.
            let target = epoch
                .cubic(elapsed + round_trip)
                .clamp(epoch.window, 1.5 * epoch.window);
            epoch.window += (target - epoch.window) / epoch.window * acknowledged;
        }
        in_bytes(epoch.window, segment).max(cwnd)
    }
}

impl Epoch {
    fn new(start: Time, window: f64, maximum: Option<f64>) -> Self {
        let maximum = maximum.unwrap_or(window).max(window);
        Self {
            start,
            to_maximum: libm::cbrt((maximum - window) / C),
            maximum,
            estimate: window,
            window,
        }
    }

    /// `W_cubic(t)` (equation 1).
    fn cubic(&self, elapsed: TimeSpan) -> f64 {
        let from_maximum = elapsed.as_seconds() - self.to_maximum;
        C * from_maximum * from_maximum * from_maximum + self.maximum
    }
}

#[allow(clippy::cast_precision_loss)]
fn in_segments(bytes: u64, segment: u64) -> f64 {
    bytes as f64 / segment as f64
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn in_bytes(segments: f64, segment: u64) -> u64 {
    libm::round(segments * segment as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1000;

    #[test]
    fn a_loss_keeps_seven_tenths_and_converges_fast() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.reduce(100_000, SEGMENT), 70_000);
        assert_eq!(cubic.maximum, Some(100.0));
        // Below the last maximum: W_max = 80 · 1.7 / 2.
        assert_eq!(cubic.reduce(80_000, SEGMENT), 56_000);
        assert_eq!(cubic.maximum, Some(68.0));
    }

    #[test]
    fn the_window_is_at_its_maximum_again_after_k() {
        // W_max = 100, cwnd = 70: K = ∛(30 / 0.4) = 4.217 s.
        let mut cubic = Cubic::default();
        let mut cwnd = cubic.reduce(100_000, SEGMENT);
        let round_trip = TimeSpan::from_milliseconds(100);
        let mut seen = Vec::new();
        // A round trip has about as many ACKs as the window has segments.
        let mut now = Time::from_nanoseconds(0);
        for round in 0..60 {
            let acks = cwnd / SEGMENT;
            for _ in 0..acks {
                now += round_trip / acks;
                cwnd = cubic.grow(now, round_trip, SEGMENT, cwnd, SEGMENT);
            }
            if round == 20 || round == 42 {
                seen.push(cwnd / SEGMENT);
            }
        }
        // Equation 1 at 2.1 s: 0.4 · (2.1 − 4.217)³ + 100 = 96.2; at 4.3 s: 100.
        assert!((95..=97).contains(&seen[0]), "{seen:?}");
        assert!((99..=100).contains(&seen[1]), "{seen:?}");
        // Beyond the maximum it probes: at 6 s, 0.4 · 1.783³ + 100 = 102.3.
        assert!((101..=103).contains(&(cwnd / SEGMENT)), "{cwnd}");
    }

    #[test]
    fn a_short_path_grows_like_reno() {
        // At 1 ms the cubic function hardly moves: W_est determines cwnd, 0.529 segments in a round
        // trip.
        let mut cubic = Cubic::default();
        let mut cwnd = cubic.reduce(10_000, SEGMENT);
        let round_trip = TimeSpan::from_milliseconds(1);
        let mut now = Time::ZERO;
        for _ in 0..4 {
            for _ in 0..7 {
                now += round_trip / 7;
                cwnd = cubic.grow(now, round_trip, SEGMENT, cwnd, SEGMENT);
            }
        }
        // cwnd begins at 7 segments after the reduction, and grows for 4 round trips by 0.529
        // segments each. Each round trip has 7 ACKs instead of about 8, so the growth is 7/8 of
        // that.
        assert!((8_700..9_200).contains(&cwnd), "{cwnd}");
    }
}
