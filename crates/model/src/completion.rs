//! Completion time of a transfer: slow start, the growth of the receiver's window, then the
//! steady throughput.
//!
//! Cardwell, Savage and Anderson, "Modeling TCP latency", INFOCOM 2000: slow start lasts until its
//! first loss. With d packets to send, slow start sends E\[d_ss\] = (1 − (1 − p)^d)(1 − p)/p + 1 of them on
//! average. The first loss costs a recovery with probability 1 − (1 − p)^d, and the remaining data is sent at
//! the steady throughput. Three things differ here: the steady throughput is that of [`crate::leg`], the
//! window of a modern receiver grows too, and several losses pass before the window of slow start falls to
//! the steady one.

use midspan_units::ByteSize;

use crate::leg::{Isolated, Leg};
use crate::overlay::Outcome;

/// How a connection starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Initial window in segments: 10 according to RFC 6928. Zero counts as one.
    pub initial_window: u32,
    /// The receiver's first window. Linux: 64 KB. It doubles in each round trip up to the receive
    /// buffer, as automatic tuning allows.
    pub first_receive_window: ByteSize,
    /// Round trips, end to end, before the client sends its request: 0 for an open connection, 1
    /// for the handshake, more for TLS. Only [`session_time`] uses it.
    pub round_trips_before: u32,
}

impl Default for Start {
    /// Linux on both sides, with a handshake first.
    fn default() -> Self {
        Self {
            initial_window: 10,
            first_receive_window: ByteSize::from_bytes(65_535),
            round_trips_before: 1,
        }
    }
}

/// Largest number of rounds of slow start that are computed one by one; windows double, so 64
/// rounds exceed any size.
const MOST_ROUNDS: u32 = 64;

/// Seconds from the first byte that the sender sends to the last byte that arrives, on `leg` alone,
/// over an existing connection. `None` if no data gets through.
///
/// A transfer of 0 bytes takes no time. One that fits into the initial window takes its
/// transmission and half a round trip.
#[must_use]
pub fn transfer_time(leg: &Leg, size: ByteSize, start: &Start) -> Option<f64> {
    one_leg(leg, &leg.isolated(), size, start)
}

fn one_leg(leg: &Leg, isolated: &Isolated, size: ByteSize, start: &Start) -> Option<f64> {
    let rate = isolated.rate.packets_per_second();
    if rate <= 0.0 {
        return None;
    }
    let packets = size.bytes().div_ceil(u64::from(leg.transport.payload())) as f64;
    if packets <= 0.0 {
        return Some(0.0);
    }
    let round_trip = leg.section.round_trip();
    let (bandwidth, loss) = (link_rate(leg, isolated), leg.section.loss());
    // Until the first loss, only the link and the buffers bound the rate.
    let lossless = isolated.without_loss(leg.transport.payload()).max(rate);
    let slow = Ramp {
        window: f64::from(start.initial_window.max(1)),
        receive: leg.transport.packets_in(start.first_receive_window),
        most_receive: leg.transport.packets_in(leg.receive_buffer),
        most: lossless * round_trip,
        round_trip,
        bandwidth,
    };
    let first_loss = packets_until_loss(packets, loss);
    let (in_ramp, ramp_time, window) = slow.run(first_loss);
    let until_loss = (first_loss - in_ramp).max(0.0);
    let descent = Descent {
        reached: if round_trip > 0.0 {
            window / round_trip
        } else {
            lossless
        },
        steady: rate,
        remains: leg.transport.response.remains_after_loss(),
        between_losses: if loss > 0.0 {
            1.0 / loss
        } else {
            f64::INFINITY
        },
    };
    let after_loss = descent.time(packets - in_ramp - until_loss);
    let some_loss = -libm::expm1(packets * libm::log1p(-loss));
    let q = isolated.time_out_probability;
    let recovery = (1.0 - q) * round_trip + q * leg.transport.time_out.on(&leg.section);
    let ramp_time = ramp_time + until_loss / lossless;
    Some(ramp_time + some_loss * recovery + after_loss + round_trip / 2.0)
}

/// The rate of the link itself, in packets per second: the rate within a round of slow start.
fn link_rate(leg: &Leg, isolated: &Isolated) -> f64 {
    let bytes = f64::from(leg.transport.payload()) + f64::from(leg.transport.headers());
    (leg.section.rate() / 8.0 / bytes).max(isolated.rate.packets_per_second())
}

/// E\[d_ss\]: packets, of `packets`, that slow start sends before its first loss, including the
/// lost one.
fn packets_until_loss(packets: f64, loss: f64) -> f64 {
    if loss <= 0.0 {
        return packets;
    }
    if loss >= 1.0 {
        return 1.0;
    }
    let none_lost = libm::exp(packets * libm::log1p(-loss));
    ((1.0 - none_lost) * (1.0 - loss) / loss + 1.0).min(packets)
}

/// The phase after the first loss: slow start has led to a window far above the steady one, and
/// each loss reduces it by its share until it is steady. In between, the window hardly grows.
struct Descent {
    /// Packets per second before the first loss.
    reached: f64,
    /// Packets per second in the long run.
    steady: f64,
    /// Share of the window that remains after a loss.
    remains: f64,
    between_losses: f64,
}

impl Descent {
    /// The time for `packets`, in seconds.
    fn time(&self, packets: f64) -> f64 {
        let (mut rest, mut rate, mut time) = (packets.max(0.0), self.reached, 0.0);
        for _ in 0..MOST_ROUNDS {
            rate *= self.remains;
            if rate <= self.steady || rest <= 0.0 {
                break;
            }
            let now = rest.min(self.between_losses);
            time += now / rate;
            rest -= now;
        }
        time + rest / self.steady
    }
}

/// Rounds of slow start, each one window, until the largest window or the end of the data.
struct Ramp {
    window: f64,
    receive: f64,
    most_receive: f64,
    most: f64,
    round_trip: f64,
    bandwidth: f64,
}

impl Ramp {
    /// Sends at most `packets`. Returns how many it sent, the time until the next one could leave,
    /// and the window that it reached. The last round counts only with its transmission, because
    /// nothing waits for its ACKs.
    fn run(mut self, packets: f64) -> (f64, f64, f64) {
        let (mut sent, mut time) = (0.0, 0.0);
        for _ in 0..MOST_ROUNDS {
            let window = self.window.min(self.receive);
            if window >= self.most {
                break;
            }
            let now = window.min(packets - sent);
            let transmission = now / self.bandwidth;
            sent += now;
            if sent >= packets {
                time += transmission;
                break;
            }
            time += transmission.max(self.round_trip);
            self.window *= 2.0;
            self.receive = (self.receive * 2.0).min(self.most_receive.max(self.receive));
        }
        (sent, time, self.window.min(self.receive).min(self.most))
    }
}

/// Seconds from the client's SYN, through its request, to the last byte of the response, through a
/// chain of proxies with the handshake end to end. `legs` are those of the response's direction,
/// `initial_windows` those of their senders; a missing one is replaced by that of `start`. `None`
/// if no data gets through.
///
/// The legs work at the same time: the slowest of them determines the time, and each other leg adds
/// half its round trip. The long-term cost of the legs' interaction ([`Outcome`]) is added for all `size`
/// bytes.
#[must_use]
pub fn session_time(
    legs: &[Leg],
    initial_windows: &[u32],
    outcome: &Outcome,
    size: ByteSize,
    start: &Start,
) -> Option<f64> {
    let end_to_end: f64 = legs.iter().map(|leg| leg.section.round_trip()).sum();
    let before = f64::from(start.round_trips_before) * end_to_end + end_to_end / 2.0;
    let mut slowest: f64 = 0.0;
    let mut slowest_round_trip: f64 = 0.0;
    for (index, leg) in legs.iter().enumerate() {
        let start = Start {
            initial_window: initial_windows
                .get(index)
                .copied()
                .unwrap_or(start.initial_window),
            ..*start
        };
        let time = one_leg(leg, &leg.isolated(), size, &start)?;
        if time > slowest {
            (slowest, slowest_round_trip) = (time, leg.section.round_trip());
        }
    }
    let through = outcome.throughput.bits_per_second();
    let expected = outcome.expected.bits_per_second();
    if through <= 0.0 || expected <= 0.0 {
        return None;
    }
    let bits = size.bytes() as f64 * 8.0;
    let interaction = (bits / through - bits / expected).max(0.0);
    Some(before + slowest + (end_to_end - slowest_round_trip) / 2.0 + interaction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::Transport;
    use crate::overlay::{self, Analysis, ChainedLeg};
    use crate::path::{Hop, Section};

    fn leg(rate: &str, round_trip: &str, loss: &str) -> Leg {
        Leg {
            section: Section::of(&Hop {
                rate: rate.parse().unwrap(),
                round_trip: round_trip.parse().unwrap(),
                loss: loss.parse().unwrap(),
                return_rate: None,
                queue: None,
            }),
            transport: Transport::linux(),
            receive_buffer: ByteSize::from_bytes(6 << 20),
            send_buffer: None,
        }
    }

    fn time(leg: &Leg, size: &str) -> f64 {
        transfer_time(leg, size.parse().unwrap(), &Start::default()).unwrap()
    }

    #[test]
    fn a_small_transfer_takes_the_rounds_of_slow_start() {
        // 70 packets: 10, 20, 40 in three rounds; the last packet arrives half a round trip
        // after it was sent.
        let long = leg("1 Gbit/s", "500 ms", "0 %");
        let found = time(&long, "101360 B");
        let last_round = 40.0 * 1500.0 * 8.0 / 1e9;
        assert!((found - (1.0 + 0.25 + last_round)).abs() < 1e-9, "{found}");
        // One packet: half a round trip.
        assert!((time(&long, "1 B") - 0.25).abs() < 1e-4);
        assert_eq!(time(&long, "0 B"), 0.0);
    }

    #[test]
    fn a_large_transfer_goes_at_the_steady_throughput() {
        let short = leg("10 Mbit/s", "10 ms", "0 %");
        let found = time(&short, "10 MB");
        let steady = 10e6 * 8.0 / (10e6 * 1448.0 / 1500.0);
        assert!((found / steady - 1.0).abs() < 0.02, "{found} {steady}");
    }

    #[test]
    fn the_receiver_window_holds_slow_start_back() {
        let long = leg("1 Gbit/s", "500 ms", "0 %");
        let mut tight = long;
        tight.receive_buffer = ByteSize::from_bytes(64_000);
        assert!(time(&tight, "1 MB") > 2.0 * time(&long, "1 MB"));
    }

    #[test]
    fn time_grows_with_size_and_loss() {
        for (small, large) in [("10 KB", "100 KB"), ("100 KB", "1 MB"), ("1 MB", "10 MB")] {
            for loss in ["0 %", "0.01 %", "1 %"] {
                let leg = leg("20 Mbit/s", "100 ms", loss);
                assert!(time(&leg, small) < time(&leg, large), "{small} {loss}");
            }
        }
        let with = |loss| time(&leg("20 Mbit/s", "100 ms", loss), "1 MB");
        assert!(with("0 %") < with("0.1 %") && with("0.1 %") < with("1 %"));
    }

    #[test]
    fn nothing_arrives_where_every_packet_is_lost() {
        let dead = leg("1 Gbit/s", "10 ms", "100 %");
        let size = ByteSize::from_bytes(1000);
        assert_eq!(transfer_time(&dead, size, &Start::default()), None);
    }

    #[test]
    fn a_proxy_shortens_a_lossy_transfer() {
        let end_to_end = leg("20 Mbit/s", "200 ms", "1 %");
        let halves = [leg("20 Mbit/s", "100 ms", "0.5 %"); 2];
        let chain = halves.map(|leg| ChainedLeg {
            leg,
            waiting: ByteSize::from_bytes(512_000),
        });
        let size = ByteSize::from_bytes(10_000_000);
        let alone = [ChainedLeg {
            leg: end_to_end,
            waiting: ByteSize::from_bytes(0),
        }];
        let analysis = Analysis::default();
        let start = Start::default();
        let split = overlay::analyse(&chain, &analysis).unwrap();
        let whole = overlay::analyse(&alone, &analysis).unwrap();
        let split = session_time(&halves, &[], &split, size, &start).unwrap();
        let whole = session_time(&[end_to_end], &[], &whole, size, &start).unwrap();
        assert!(split < 0.7 * whole, "{split} {whole}");
    }
}
