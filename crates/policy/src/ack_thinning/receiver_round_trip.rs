//! Measures `rcv_RTT` at a receiver, or at a middlebox next to it (Tam §3.2, 1).

use midspan_units::{Time, TimeSpan};

use crate::{RoundTrip, RoundTripSource};

/// Measures the round trips of one flow in the four ways of the paper, each one at a time.
///
/// A measurement across a pause of the sender shows nothing about the path. It is dropped if data
/// comes later than `rcv_RTO` after the data before (§5.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiverRoundTrip {
    handshake: Option<Time>,
    own_data: Option<(Time, u32)>,
    echo: Option<(Time, u16)>,
    timestamp: Option<(Time, u32)>,
    last_timestamp: Option<u32>,
    last_data: Option<Time>,
    last: Option<TimeSpan>,
}

impl ReceiverRoundTrip {
    /// Method 2: a SYN or SYN-ACK left. If it is sent twice, it is not timed (Karn's algorithm).
    pub fn handle_syn_sent(&mut self, now: Time) {
        self.handshake = if self.handshake.is_some() || self.last.is_some() {
            None
        } else {
            Some(now)
        };
    }

    /// Method 2: the answer arrived.
    pub fn handle_syn_answered(&mut self, now: Time) -> Option<RoundTrip> {
        let sent = self.handshake.take()?;
        Some(self.measured(RoundTripSource::Handshake, now, sent))
    }

    /// Method 1: data of the receiver's own left, up to this sequence number. Must not be called
    /// for data that may be a retransmission.
    pub fn handle_own_data(&mut self, now: Time, end: u32) {
        self.own_data.get_or_insert((now, end));
    }

    /// Method 1: the far end has acknowledged up to this number.
    pub fn handle_acknowledged(&mut self, now: Time, number: u32) -> Option<RoundTrip> {
        let (sent, _) = self.own_data.take_if(|(_, end)| !is_before(number, *end))?;
        Some(self.measured(RoundTripSource::OwnData, now, sent))
    }

    /// Method 1: own data was sent again, so its ACK is not timed (Karn's algorithm).
    pub const fn handle_own_retransmission(&mut self) {
        self.own_data = None;
    }

    /// Method 3: an ICMP echo request with this sequence number left.
    pub const fn handle_echo_sent(&mut self, now: Time, sequence: u16) {
        self.echo = Some((now, sequence));
    }

    /// Method 3: a reply arrived.
    pub fn handle_echo_reply(&mut self, now: Time, sequence: u16) -> Option<RoundTrip> {
        let (sent, _) = self.echo.take_if(|(_, sent)| *sent == sequence)?;
        Some(self.measured(RoundTripSource::IcmpEcho, now, sent))
    }

    /// Method 4: an ACK with this timestamp value (`TSval`) left. Only the first ACK with a value
    /// is timed.
    pub fn handle_ack_sent(&mut self, now: Time, timestamp: u32) {
        let new = self
            .last_timestamp
            .is_none_or(|last| is_before(last, timestamp));
        if new {
            self.last_timestamp = Some(timestamp);
            if self.timestamp.is_none() {
                self.timestamp = Some((now, timestamp));
            }
        }
    }

    /// A data segment arrived; for method 4, with this timestamp echo (`TSecr`).
    ///
    /// After a pause, an echo of the newest timestamp may come from a sender that had nothing to
    /// send, so it is not used. While newer ACKs are in flight, the sender was waiting for this
    /// one, however long that took.
    pub fn handle_data(&mut self, now: Time, echo: Option<u32>) -> Option<RoundTrip> {
        let pause = self.last_data.map(|before| now.since(before));
        self.last_data = Some(now);
        let echo = echo?;
        let (sent, _) = self
            .timestamp
            .take_if(|(_, sent)| !is_before(echo, *sent))?;
        let is_newest = self
            .last_timestamp
            .is_none_or(|newest| !is_before(echo, newest));
        if let (Some(pause), Some(last), true) = (pause, self.last, is_newest)
            && pause > last + last / 5
        {
            return None;
        }
        Some(self.measured(RoundTripSource::Timestamp, now, sent))
    }

    fn measured(&mut self, source: RoundTripSource, now: Time, sent: Time) -> RoundTrip {
        let span = now.since(sent);
        self.last = Some(span);
        RoundTrip { source, span }
    }
}

/// Whether a number modulo 2³² comes before another (RFC 9293 §3.4, RFC 7323 §5.2).
pub(super) const fn is_before(earlier: u32, later: u32) -> bool {
    later.wrapping_sub(earlier).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn span(measured: Option<RoundTrip>) -> Option<u64> {
        measured.map(|measured| measured.span.nanoseconds() / 1_000_000)
    }

    #[test]
    fn a_handshake_is_timed_once() {
        let mut flow = ReceiverRoundTrip::default();
        flow.handle_syn_sent(at(10));
        assert_eq!(span(flow.handle_syn_answered(at(60))), Some(50));
        assert_eq!(flow.handle_syn_answered(at(70)), None);
        let mut again = ReceiverRoundTrip::default();
        again.handle_syn_sent(at(10));
        again.handle_syn_sent(at(1010));
        assert_eq!(again.handle_syn_answered(at(1060)), None);
    }

    #[test]
    fn own_data_is_timed_until_all_of_it_is_acknowledged_across_the_wrap() {
        let mut flow = ReceiverRoundTrip::default();
        flow.handle_own_data(at(0), 5);
        flow.handle_own_data(at(1), 1000);
        assert_eq!(flow.handle_acknowledged(at(30), u32::MAX - 3), None);
        assert_eq!(span(flow.handle_acknowledged(at(40), 5)), Some(40));
        flow.handle_own_data(at(50), 2000);
        flow.handle_own_retransmission();
        assert_eq!(flow.handle_acknowledged(at(90), 2000), None);
    }

    #[test]
    fn an_echo_reply_must_be_that_of_the_request() {
        let mut flow = ReceiverRoundTrip::default();
        flow.handle_echo_sent(at(0), 1);
        flow.handle_echo_sent(at(200), 2);
        assert_eq!(flow.handle_echo_reply(at(210), 1), None);
        assert_eq!(span(flow.handle_echo_reply(at(250), 2)), Some(50));
    }

    #[test]
    fn the_first_ack_of_a_timestamp_is_timed_until_its_echo() {
        let mut flow = ReceiverRoundTrip::default();
        flow.handle_ack_sent(at(0), 7);
        // The clock has not ticked, and a measurement in progress is not restarted.
        flow.handle_ack_sent(at(3), 7);
        flow.handle_ack_sent(at(10), 8);
        assert_eq!(flow.handle_data(at(20), Some(6)), None);
        assert_eq!(span(flow.handle_data(at(80), Some(7))), Some(80));
        // A value that was sent before the measurement began is not timed later.
        flow.handle_ack_sent(at(81), 8);
        assert_eq!(flow.handle_data(at(90), Some(8)), None);
        flow.handle_ack_sent(at(91), 9);
        assert_eq!(span(flow.handle_data(at(171), Some(9))), Some(80));
    }

    #[test]
    fn a_pause_of_the_sender_is_no_round_trip() {
        let mut flow = ReceiverRoundTrip::default();
        flow.handle_ack_sent(at(0), 1);
        assert_eq!(span(flow.handle_data(at(100), Some(1))), Some(100));
        flow.handle_ack_sent(at(101), 2);
        assert_eq!(flow.handle_data(at(900), Some(2)), None);
        flow.handle_ack_sent(at(901), 3);
        assert_eq!(span(flow.handle_data(at(1000), Some(3))), Some(99));
    }

    #[test]
    fn a_round_trip_that_grows_at_once_is_measured() {
        // ACKs begin to wait in the upstream's queue: the handshake was far shorter.
        let mut flow = ReceiverRoundTrip::default();
        flow.handle_syn_sent(at(0));
        flow.handle_syn_answered(at(1));
        flow.handle_data(at(1), Some(0));
        flow.handle_ack_sent(at(2), 10);
        flow.handle_ack_sent(at(4), 11);
        assert_eq!(span(flow.handle_data(at(100), Some(10))), Some(98));
    }

    #[test]
    fn a_round_trip_that_has_really_grown_is_measured() {
        // §5.1, footnote: as long as packets come in within each 1.2 RTT.
        let mut flow = ReceiverRoundTrip::default();
        flow.handle_ack_sent(at(0), 1);
        flow.handle_data(at(100), Some(1));
        flow.handle_ack_sent(at(100), 2);
        for time in (110..400).step_by(10) {
            assert_eq!(flow.handle_data(at(time), Some(1)), None);
        }
        assert_eq!(span(flow.handle_data(at(400), Some(2))), Some(300));
    }
}
