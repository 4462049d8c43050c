//! The throughput of one leg alone: the smallest of what loss, bandwidth and windows allow.
//!
//! Maki §III B: ρₖ\[0\] = min(Eq. (1), link bandwidth, RBₖ/RTTₖ), before any interaction with the
//! neighbouring legs.

use std::num::NonZeroU32;

use midspan_units::{ByteSize, TimeSpan};

use crate::path::Section;
use crate::pftk::Conditions;
use crate::response::{Cycle, Response, Steady, TimeOut};
use crate::{ModelError, PacketRate, Throughput};

/// The TCP that runs on a leg.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transport {
    payload: u32,
    headers: u32,
    /// The congestion control.
    pub response: Response,
    /// The first retransmission time-out.
    pub time_out: TimeOut,
    /// Packets that one ACK acknowledges. Also b, by which windows grow, if the sender counts ACKs.
    pub packets_per_ack: NonZeroU32,
    /// Whether windows grow by the data that ACKs acknowledge (RFC 3465), as Linux's do since version
    /// 3.15: b is 1 then.
    pub counts_bytes: bool,
    /// Bytes of one ACK on the link; only used if a return rate is given.
    pub ack_size: u32,
}

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

impl Transport {
    /// A transport whose packets carry `payload` bytes of data and `headers` bytes of headers.
    ///
    /// # Errors
    /// [`ModelError::EmptySegment`] if `payload` is zero.
    pub fn new(payload: u32, headers: u32, response: Response) -> Result<Self, ModelError> {
        if payload == 0 {
            return Err(ModelError::EmptySegment);
        }
        Ok(Self {
            payload,
            headers,
            response,
            time_out: TimeOut::Linux,
            packets_per_ack: NonZeroU32::MIN,
            counts_bytes: false,
            ack_size: headers,
        })
    }

    /// Today's Linux sender and receiver: CUBIC; 1,448 bytes of data and 52 of IPv4, TCP and
    /// timestamps; one ACK for every second packet.
    #[must_use]
    pub const fn linux() -> Self {
        Self {
            payload: 1448,
            headers: 52,
            response: Response::Cubic,
            time_out: TimeOut::Linux,
            packets_per_ack: TWO,
            counts_bytes: true,
            ack_size: 52,
        }
    }

    /// The sender of Maki's tables, found by trial: Reno according to Eq. (1), packets of 1,000
    /// bytes of which all are data, b = 1, T_o = 1 s.
    #[must_use]
    pub const fn maki() -> Self {
        Self {
            payload: 1000,
            headers: 0,
            response: Response::Reno,
            time_out: TimeOut::Fixed(TimeSpan::from_seconds(1)),
            packets_per_ack: NonZeroU32::MIN,
            counts_bytes: false,
            ack_size: 40,
        }
    }

    /// Bytes of data in a packet; never zero.
    #[must_use]
    pub const fn payload(&self) -> u32 {
        self.payload
    }

    /// Bytes of headers of a packet on the link.
    #[must_use]
    pub const fn headers(&self) -> u32 {
        self.headers
    }

    /// Packets that fit into a buffer of `bytes`. A buffer smaller than one segment counts as one:
    /// TCP lets one segment pass however small the buffer is.
    #[must_use]
    pub fn packets_in(&self, bytes: ByteSize) -> f64 {
        (bytes.bytes() as f64 / f64::from(self.payload)).max(1.0)
    }
}

/// One leg: a section of the path, the TCP on it, and the buffers that bound its window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// The section of the path that the leg crosses.
    pub section: Section,
    /// The TCP on it.
    pub transport: Transport,
    /// RB, the receiver's buffer, which bounds the advertised window.
    pub receive_buffer: ByteSize,
    /// The sender's buffer if it bounds the data in flight, as it does in every real TCP; `None`
    /// leaves the bound out, as Maki does.
    pub send_buffer: Option<ByteSize>,
}

/// The limit that keeps a leg from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// Packet loss, and the congestion control's reaction to it.
    Loss,
    /// The slowest link.
    Bandwidth,
    /// The receiver's buffer: RB/RTT.
    ReceiveBuffer,
    /// The sender's buffer: SB/RTT.
    SendBuffer,
    /// ACKs fill the return direction.
    Acknowledgements,
}

/// The throughput of a leg alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Isolated {
    /// ρₖ\[0\] in packets of the leg per second.
    pub rate: PacketRate,
    /// The same in bit/s of user data.
    pub throughput: Throughput,
    /// The smallest limit.
    pub limit: Limit,
    /// The throughput that each limit alone would allow, in bit/s of user data; `None` for limits
    /// that do not exist. In the order of [`Limit`].
    pub limits: [Option<Throughput>; 5],
    /// Probability that a loss on this leg is noticed only by a time-out, 0…1.
    pub time_out_probability: f64,
    /// How often the leg loses packets and what that costs, if the formula contains it.
    pub cycle: Option<Cycle>,
}

impl Isolated {
    /// Packets of `payload` bytes per second that link, buffers and ACKs allow, without loss.
    pub(crate) fn without_loss(&self, payload: u32) -> f64 {
        let others = self.limits.iter().skip(1).flatten();
        others
            .map(|limit| limit.bits_per_second() / 8.0 / f64::from(payload.max(1)))
            .fold(f64::MAX, f64::min)
    }
}

impl Leg {
    /// The inputs of the formulas for this leg.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let packets_per_ack = f64::from(self.transport.packets_per_ack.get());
        Conditions {
            round_trip: self.section.round_trip(),
            loss: self.section.loss(),
            time_out: self.transport.time_out.on(&self.section),
            packets_per_ack,
            growth: if self.transport.counts_bytes {
                1.0
            } else {
                packets_per_ack
            },
        }
    }

    /// The link's rate in packets of this leg per second.
    fn bandwidth(&self) -> PacketRate {
        let bytes = f64::from(self.transport.payload) + f64::from(self.transport.headers);
        PacketRate::from_f64(self.section.rate() / 8.0 / bytes)
    }

    /// The rate of one window of `buffer` in each round trip; `None` without delay.
    fn window_rate(&self, buffer: ByteSize) -> Option<PacketRate> {
        let round_trip = self.section.round_trip();
        let packets = self.transport.packets_in(buffer);
        (round_trip > 0.0).then(|| PacketRate::from_f64(packets / round_trip))
    }

    /// The rate of data packets at which the ACKs of these packets just fill the return direction; `None` if
    /// the rate of the return direction is not given.
    fn acknowledged(&self) -> Option<PacketRate> {
        let acks = self.section.return_rate()? / 8.0 / f64::from(self.transport.ack_size.max(1));
        let per_ack = f64::from(self.transport.packets_per_ack.get());
        Some(PacketRate::from_f64(acks * per_ack))
    }

    /// The leg's throughput alone, and its limit. A link always has a rate, so there is always a
    /// result; if every packet is lost, it is zero.
    #[must_use]
    pub fn isolated(&self) -> Isolated {
        let bandwidth = self.bandwidth();
        let Steady {
            rate: lossy,
            time_out_probability,
            cycle,
        } = self.steady(&self.conditions(), self.queue(), bandwidth);
        let rates = [
            (Limit::Loss, lossy),
            (Limit::Bandwidth, Some(bandwidth)),
            (Limit::ReceiveBuffer, self.window_rate(self.receive_buffer)),
            (
                Limit::SendBuffer,
                self.send_buffer.and_then(|buffer| self.window_rate(buffer)),
            ),
            (Limit::Acknowledgements, self.acknowledged()),
        ];
        let (mut limit, mut rate) = (Limit::Bandwidth, bandwidth);
        for (candidate, allowed) in rates {
            if let Some(allowed) = allowed.filter(|allowed| *allowed < rate) {
                (limit, rate) = (candidate, allowed);
            }
        }
        if limit == Limit::Loss && self.is_held_without_loss(rate, bandwidth) {
            let others = rates.iter().skip(1);
            let least = others.filter_map(|(limit, rate)| Some((*limit, (*rate)?)));
            limit = least
                .reduce(|least, other| if other.1 < least.1 { other } else { least })
                .map_or(limit, |(limit, _)| limit);
        }
        let throughput = |rate: PacketRate| rate.throughput(self.transport.payload);
        Isolated {
            rate,
            throughput: throughput(rate),
            limit,
            limits: rates.map(|(_, allowed)| allowed.map(throughput)),
            time_out_probability,
            cycle,
        }
    }

    /// Packets in flight that both buffers allow.
    fn window(&self) -> f64 {
        let buffer = self
            .send_buffer
            .map_or(self.receive_buffer, |send| send.min(self.receive_buffer));
        self.transport.packets_in(buffer)
    }

    /// Packets that may wait in front of the slowest link.
    fn queue(&self) -> Option<f64> {
        let size = f64::from(self.transport.payload) + f64::from(self.transport.headers);
        Some((self.section.queue()? / size).floor())
    }

    fn steady(&self, conditions: &Conditions, queue: Option<f64>, bandwidth: PacketRate) -> Steady {
        let response = self.transport.response;
        response.steady(conditions, bandwidth, Some(self.window()), queue)
    }

    /// Whether a formula that includes the buffers gives hardly more than `rate` without any loss:
    /// then loss is not the limit.
    fn is_held_without_loss(&self, rate: PacketRate, bandwidth: PacketRate) -> bool {
        if !matches!(self.transport.response, Response::Window(_)) {
            return false;
        }
        let lossless = Conditions {
            loss: 0.0,
            ..self.conditions()
        };
        let most = self.steady(&lossless, None, bandwidth).rate;
        most.is_some_and(|most| rate.packets_per_second() > 0.97 * most.packets_per_second())
    }
}

#[cfg(test)]
mod tests {
    use midspan_units::{BitRate, Probability};

    use super::*;
    use crate::path::Hop;

    fn leg(rate: &str, round_trip: &str, loss: &str, buffer: &str) -> Leg {
        let hop = Hop {
            rate: rate.parse::<BitRate>().unwrap(),
            round_trip: round_trip.parse().unwrap(),
            loss: loss.parse::<Probability>().unwrap(),
            return_rate: None,
            queue: None,
        };
        Leg {
            section: Section::of(&hop),
            transport: Transport::maki(),
            receive_buffer: buffer.parse().unwrap(),
            send_buffer: None,
        }
    }

    #[test]
    fn the_least_limit_binds() {
        let limit = |leg: Leg| leg.isolated().limit;
        assert_eq!(limit(leg("1 Gbit/s", "100 ms", "1 %", "4 MB")), Limit::Loss);
        assert_eq!(
            limit(leg("1 Mbit/s", "10 ms", "0 %", "4 MB")),
            Limit::Bandwidth
        );
        assert_eq!(
            limit(leg("1 Gbit/s", "500 ms", "0 %", "64 KB")),
            Limit::ReceiveBuffer
        );
        let mut short = leg("1 Gbit/s", "500 ms", "0 %", "64 KB");
        short.send_buffer = Some(ByteSize::from_bytes(8_000));
        assert_eq!(limit(short), Limit::SendBuffer);
    }

    #[test]
    fn windows_and_rates_are_in_user_data() {
        let window = leg("1 Gbit/s", "500 ms", "0 %", "64 KB").isolated();
        assert!((window.throughput.bits_per_second() - 64_000.0 * 8.0 / 0.5).abs() < 1e-6);
        let mut framed = leg("8 Mbit/s", "0 s", "0 %", "64 KB");
        framed.transport = Transport::linux();
        let rate = framed.isolated().throughput.bits_per_second();
        assert!((rate - 8e6 * 1448.0 / 1500.0).abs() < 1e-6);
    }

    #[test]
    fn a_narrow_way_back_binds_by_its_acks() {
        // Hasegawa §6.1: 32 kbit/s upstream, ACKs of 52 bytes, one for two segments of 1,460 bytes.
        let mut narrow = leg("8 Mbit/s", "0 s", "0 %", "64 KB");
        narrow.transport = Transport::new(1460, 40, Response::Reno).unwrap();
        narrow.transport.packets_per_ack = TWO;
        narrow.transport.ack_size = 52;
        narrow.section = Section::of(&Hop {
            rate: "8 Mbit/s".parse().unwrap(),
            round_trip: TimeSpan::ZERO,
            loss: Probability::ZERO,
            return_rate: Some("32 kbit/s".parse().unwrap()),
            queue: None,
        });
        let isolated = narrow.isolated();
        assert_eq!(isolated.limit, Limit::Acknowledgements);
        assert!((isolated.throughput.megabits_per_second() - 1.797).abs() < 0.001);
    }

    #[test]
    fn degenerate_legs_have_answers() {
        assert_eq!(
            leg("1 Mbit/s", "1 ms", "100 %", "64 KB")
                .isolated()
                .throughput,
            Throughput::ZERO
        );
        // No delay, but loss: only time-outs take time.
        let isolated = leg("1 Gbit/s", "0 s", "1 %", "64 KB").isolated();
        assert_eq!(isolated.limit, Limit::Loss);
        // An empty buffer still lets one packet pass in each round trip.
        let isolated = leg("1 Gbit/s", "100 ms", "0 %", "0 B").isolated();
        assert!((isolated.rate.packets_per_second() - 10.0).abs() < 1e-9);
        assert_eq!(
            Transport::new(0, 40, Response::Reno),
            Err(ModelError::EmptySegment)
        );
    }
}
