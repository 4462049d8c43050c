//! Bursts from a split proxy after a loss on its inbound leg, and the queues that they overflow.
//!
//! Shikama, "Evaluation of mitigation to bursty packets by a TCP proxy in a wired and wireless
//! network". While a lost packet is missing, TCP keeps the data after it in the receive buffer. The
//! retransmission releases all of that data at once as *forward data*, which the proxy sends on at
//! the rate of its own interface.

use midspan_units::{BitRate, ByteSize};

use crate::ModelError;
use crate::leg::Leg;
use crate::pftk;

/// Largest burst in packets: the inbound window in whole segments (§5.1). At least one.
///
/// Forward data "might be up to the window size of TCP over the wireless section" (§1): 64 KB is
/// 43 segments of 1,460 bytes, with KB = 1,000 bytes.
///
/// # Errors
/// [`ModelError::EmptySegment`] if `segment` is zero.
pub fn largest_burst(window: ByteSize, segment: u32) -> Result<u64, ModelError> {
    if segment == 0 {
        return Err(ModelError::EmptySegment);
    }
    Ok((window.bytes() / u64::from(segment)).max(1))
}

/// Mean burst in packets that a loss on `inbound` releases: the window at which a loss is noticed
/// (PFTK's E\[W\]), at most [`largest_burst`].
///
/// Fewer losses lead to larger bursts, because the window has time to grow (§5.1, Fig. 9). Without
/// loss there is no burst, and if every packet is lost there is no data: zero in both cases.
#[must_use]
pub fn mean_burst(inbound: &Leg) -> f64 {
    let segment = inbound.transport.payload();
    let largest = (inbound.receive_buffer.bytes() / u64::from(segment)).max(1) as f64;
    if inbound.section.loss() >= 1.0 {
        return 0.0;
    }
    pftk::window_at_loss(&inbound.conditions()).map_or(0.0, |window| window.min(largest))
}

/// Largest burst with pacing in chunks of one segment: 2 packets, because a delayed ACK opens the
/// window for two (§5.1, Fig. 8).
pub const PACED_BURST: u64 = 2;

/// A queue that a burst enters at one rate and leaves at a lower rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bottleneck {
    /// Rate at which the burst arrives: that of the proxy's interface.
    pub arriving: BitRate,
    /// Rate at which the queue empties: B_W.
    pub leaving: BitRate,
    /// Packets that may wait, not counting the one being sent: B_L.
    pub queue: u64,
}

/// The effect of a burst on a queue that was empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// Largest number of packets that would wait at the same time in an endless queue.
    pub waiting: u64,
    /// Packets for which there is no room.
    pub lost: u64,
}

impl Bottleneck {
    /// The effect of `burst` packets, back to back.
    ///
    /// While the last packet arrives, the queue has sent ⌊(n − 1)·B_W/B_in⌋ whole packets and is
    /// sending the next one; the others wait. No packet waits if the queue empties as fast as it
    /// fills.
    #[must_use]
    pub fn meet(&self, burst: u64) -> Overflow {
        let (arriving, leaving) = (
            u128::from(self.arriving.bits_per_second()),
            u128::from(self.leaving.bits_per_second()),
        );
        if burst == 0 || leaving >= arriving {
            return Overflow {
                waiting: 0,
                lost: 0,
            };
        }
        let sent = u128::from(burst - 1) * leaving / arriving;
        let gone = u64::try_from(sent).unwrap_or(u64::MAX).saturating_add(1);
        let waiting = burst.saturating_sub(gone);
        Overflow {
            waiting,
            lost: waiting.saturating_sub(self.queue),
        }
    }

    /// Whether `burst` packets overflow the queue.
    #[must_use]
    pub fn overflows(&self, burst: u64) -> bool {
        self.meet(burst).lost > 0
    }

    /// Largest burst that fits; `None` if every burst fits.
    #[must_use]
    pub fn largest_that_fits(&self) -> Option<u64> {
        if self.leaving >= self.arriving {
            return None;
        }
        // Losses never shrink as the burst grows, so bisection finds the border.
        let (mut fits, mut fails) = (0u64, u64::MAX);
        if !self.overflows(fails) {
            return None;
        }
        while fails - fits > 1 {
            let middle = fits + (fails - fits) / 2;
            if self.overflows(middle) {
                fails = middle;
            } else {
                fits = middle;
            }
        }
        Some(fits)
    }
}

/// The rate for pacing the outbound leg: that of the slowest link of the inbound leg, as long as
/// the outbound leg is faster (§3.3).
#[must_use]
pub fn pacing_rate(inbound: BitRate, outbound: BitRate) -> BitRate {
    inbound.min(outbound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_begin_where_the_queue_is_full() {
        let bottleneck = Bottleneck {
            arriving: "100 Mbit/s".parse().unwrap(),
            leaving: "10 Mbit/s".parse().unwrap(),
            queue: 20,
        };
        let fits = bottleneck.largest_that_fits().unwrap();
        assert!(!bottleneck.overflows(fits) && bottleneck.overflows(fits + 1));
        // One is sent at once, and two leave while the others arrive: 20 + 1 + 2.
        assert_eq!(fits, 23);
    }

    #[test]
    fn a_queue_that_empties_as_fast_as_it_fills_never_overflows() {
        let rate = "10 Mbit/s".parse().unwrap();
        let bottleneck = Bottleneck {
            arriving: rate,
            leaving: rate,
            queue: 0,
        };
        assert_eq!(bottleneck.largest_that_fits(), None);
        assert!(!bottleneck.overflows(u64::MAX));
    }

    #[test]
    fn an_empty_burst_and_an_empty_segment() {
        let bottleneck = Bottleneck {
            arriving: "2 bit/s".parse().unwrap(),
            leaving: "1 bit/s".parse().unwrap(),
            queue: 0,
        };
        assert_eq!(bottleneck.meet(0).lost, 0);
        assert_eq!(bottleneck.largest_that_fits(), Some(1));
        assert_eq!(
            largest_burst(ByteSize::from_bytes(1), 0),
            Err(ModelError::EmptySegment)
        );
        assert_eq!(largest_burst(ByteSize::from_bytes(1), 1460), Ok(1));
    }
}
