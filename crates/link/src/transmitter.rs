//! Sends packets one after the other, at a rate.

use midspan_units::{BitRate, Time};

use crate::packet::Packet;
use crate::queue::{DropTail, Queue};
use crate::stage::{Output, Outputs, Stage, Waiting};
use crate::work::{self, Moment};

/// A transmitter and the queue before it.
///
/// A packet that finds the transmitter idle is sent at once. Any other packet goes to the queue, which may drop
/// packets. A packet of n bytes takes 8·(n + overhead)/rate to send. The next packet starts when the last bit
/// of this packet has left. If the rate changes during a transmission, the bits that were sent stay sent, and
/// the others are sent at the new rate.
#[derive(Debug, Clone)]
pub struct Transmitter<P, Q = DropTail<P>> {
    queue: Q,
    overhead: u32,
    rate: Option<BitRate>,
    sending: Option<Sending<P>>,
    outputs: Outputs<P>,
    now: Time,
}

/// The packet in transmission.
#[derive(Debug, Clone)]
struct Sending<P> {
    packet: P,
    /// When the rate was last set, or the transmission started, whichever is later.
    since: Moment,
    /// The work that was left at `since`, in units of 10⁻⁹ bit.
    left: u128,
    /// When the last bit leaves, at the present rate.
    end: Moment,
}

impl<P: Packet, Q: Queue<P>> Transmitter<P, Q> {
    /// An idle transmitter behind `queue`. It sends each packet with `overhead` additional bytes at
    /// `rate`; `None`: unlimited rate.
    pub fn new(queue: Q, rate: Option<BitRate>, overhead: u32) -> Self {
        Self {
            queue,
            overhead,
            rate,
            sending: None,
            outputs: Outputs::default(),
            now: Time::ZERO,
        }
    }

    /// Sends at `rate` from `now` on, including the rest of the packet in transmission.
    pub fn set_rate(&mut self, now: Time, rate: Option<BitRate>) {
        self.finish_until(now);
        if let Some(sending) = &mut self.sending {
            sending.change_rate(self.now, self.rate, rate);
        }
        self.rate = rate;
        self.check_invariants();
    }

    /// The queue.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }

    /// Whether no packet is being sent; then no packet waits either.
    pub const fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    fn start(&mut self, since: Moment, packet: P) {
        let left = work::of_bytes(u64::from(packet.size()) + u64::from(self.overhead));
        self.sending = Some(Sending {
            packet,
            since,
            left,
            end: since.after(left, self.rate),
        });
    }

    /// Ends the transmission that is due to end by now, and starts the next one at exactly its end.
    fn finish(&mut self) -> Option<Output<P>> {
        let now = self.now;
        let Sending { packet, end, .. } = self.sending.take_if(|sending| sending.end.at <= now)?;
        if let Some(next) = self.queue.dequeue(end.at, &mut self.outputs) {
            self.start(end, next);
        }
        Some(Output::Delivered {
            due: end.at,
            packet,
        })
    }

    fn finish_until(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(output) = self.finish() {
            self.outputs.push(output);
        }
    }

    fn check_invariants(&self) {
        debug_assert!(
            !self.is_idle() || self.queue.packets() == 0,
            "nothing waits for an idle transmitter"
        );
        debug_assert!(
            self.sending
                .as_ref()
                .is_none_or(|sending| sending.since.at <= sending.end.at),
            "a transmission does not end before it starts"
        );
    }
}

impl<P> Sending<P> {
    /// The rate changes at `now`, before the end of the transmission.
    fn change_rate(&mut self, now: Time, old: Option<BitRate>, new: Option<BitRate>) {
        // At an unlimited rate, the transmission would have ended where it started.
        let Some(old) = old else { return };
        let done = work::done_in(now.since(self.since.at), old) + u128::from(self.since.spare);
        self.left = self.left.saturating_sub(done);
        self.since = Moment::rest(now);
        self.end = self.since.after(self.left, new);
    }
}

impl<P: Packet, Q: Queue<P>> Stage<P> for Transmitter<P, Q> {
    fn handle(&mut self, now: Time, packet: P) {
        self.finish_until(now);
        if self.is_idle() {
            if let Some(packet) = self.queue.pass(self.now, packet, &mut self.outputs) {
                self.start(Moment::rest(self.now), packet);
            }
        } else {
            self.queue.enqueue(self.now, packet, &mut self.outputs);
        }
        self.check_invariants();
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        self.now = self.now.max(now);
        let output = self.outputs.pop().or_else(|| self.finish());
        self.check_invariants();
        output
    }

    fn poll_timeout(&self) -> Option<Time> {
        let end = self.sending.as_ref().map(|sending| sending.end.at);
        self.outputs.due().or(end)
    }

    fn held(&self) -> usize {
        self.outputs.len() + self.queue.packets() + usize::from(!self.is_idle())
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            packets: self.queue.packets(),
            bytes: self.queue.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueLimit;

    const FULL: usize = 1500;

    fn transmitter(rate: &str) -> Transmitter<Vec<u8>> {
        let queue = DropTail::new(QueueLimit::Packets(10));
        Transmitter::new(queue, Some(rate.parse().unwrap()), 0)
    }

    fn us(microseconds: u64) -> Time {
        Time::from_nanoseconds(microseconds * 1000)
    }

    fn departures(transmitter: &mut Transmitter<Vec<u8>>, until: Time) -> Vec<u64> {
        std::iter::from_fn(|| transmitter.poll(until))
            .map(|output| output.due().nanoseconds() / 1000)
            .collect()
    }

    #[test]
    fn the_deadline_follows_the_rate() {
        let mut transmitter = transmitter("10 Mbit/s");
        assert_eq!(transmitter.poll_timeout(), None);
        transmitter.handle(us(0), vec![0; FULL]);
        assert_eq!(transmitter.poll_timeout(), Some(us(1200)));
        transmitter.set_rate(us(900), BitRate::from_bits_per_second(5_000_000));
        assert_eq!(transmitter.poll_timeout(), Some(us(1500)));
        assert_eq!(departures(&mut transmitter, us(1499)), []);
        assert_eq!(departures(&mut transmitter, us(1500)), [1500]);
        assert!(transmitter.is_idle());
    }

    #[test]
    fn an_unlimited_rate_sends_all_at_once() {
        let mut transmitter = transmitter("10 Mbit/s");
        for _ in 0..3 {
            transmitter.handle(us(0), vec![0; FULL]);
        }
        assert_eq!((transmitter.held(), transmitter.queue().packets()), (3, 2));
        transmitter.set_rate(us(900), None);
        assert_eq!(departures(&mut transmitter, us(900)), [900, 900, 900]);
        assert_eq!(transmitter.held(), 0);
    }

    #[test]
    fn a_change_of_rate_first_ends_what_was_due() {
        let mut transmitter = transmitter("10 Mbit/s");
        transmitter.handle(us(0), vec![0; FULL]);
        transmitter.handle(us(0), vec![0; FULL]);
        // There was no poll at 1.2 ms: the second packet started then, and half of it is sent.
        transmitter.set_rate(us(1800), BitRate::from_bits_per_second(1_000_000));
        assert_eq!(departures(&mut transmitter, us(9000)), [1200, 7800]);
    }

    #[test]
    fn time_never_goes_back() {
        let mut transmitter = transmitter("10 Mbit/s");
        transmitter.handle(us(1000), vec![0; FULL]);
        assert_eq!(departures(&mut transmitter, us(3000)), [2200]);
        transmitter.handle(us(500), vec![0; FULL]);
        assert_eq!(departures(&mut transmitter, us(9000)), [4200]);
    }
}
