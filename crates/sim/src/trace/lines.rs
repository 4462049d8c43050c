//! The lines of the tables, so that every program that writes such tables has the same columns.

use std::fmt;

use midspan_units::{Time, TimeSpan};

/// A name as a field: quoted if necessary (RFC 4180).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Field(String);

impl Field {
    /// The field for a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(if name.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", name.replace('"', "\"\""))
        } else {
            name.to_owned()
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A time since the start of the run, in seconds with nine decimals.
pub(super) struct Seconds(pub Time);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.nanoseconds();
        let (whole, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
        write!(f, "{whole}.{rest:09}")
    }
}

/// A value that may be missing; its field is then empty.
struct Optional<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Optional<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |value| value.fmt(f))
    }
}

/// A sender's state: a line of [`Kind::Cwnd`](super::Kind::Cwnd).
#[derive(Debug, Clone, Copy)]
pub struct CwndLine<'a> {
    /// Time since the start of the run.
    pub at: Time,
    /// The flow's name.
    pub flow: &'a Field,
    /// The number of the leg, from 1, in the direction of the data.
    pub leg: usize,
    /// The congestion window in bytes.
    pub cwnd: u64,
    /// The slow-start threshold in bytes; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// Bytes that were sent and not acknowledged.
    pub in_flight: u64,
    /// The smoothed round-trip time.
    pub round_trip: Option<TimeSpan>,
}

impl fmt::Display for CwndLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flow,
            leg,
            cwnd,
            in_flight,
            ..
        } = self;
        let (at, ssthresh) = (Seconds(self.at), Optional(self.ssthresh));
        let rtt = Optional(self.round_trip.map(TimeSpan::as_seconds));
        write!(f, "{at},{flow},{leg},{cwnd},{ssthresh},{in_flight},{rtt}")
    }
}

/// A sender's smoothed round-trip time: a line of [`Kind::Rtt`](super::Kind::Rtt).
#[derive(Debug, Clone, Copy)]
pub struct RttLine<'a> {
    /// Time since the start of the run.
    pub at: Time,
    /// The flow's name.
    pub flow: &'a Field,
    /// The number of the leg, from 1, in the direction of the data.
    pub leg: usize,
    /// The smoothed round-trip time.
    pub round_trip: TimeSpan,
}

impl fmt::Display for RttLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flow, leg, .. } = self;
        let (at, rtt) = (Seconds(self.at), self.round_trip.as_seconds());
        write!(f, "{at},{flow},{leg},{rtt}")
    }
}

/// The packets that wait at a link: a line of [`Kind::Queue`](super::Kind::Queue).
#[derive(Debug, Clone, Copy)]
pub struct QueueLine<'a> {
    /// Time since the start of the run.
    pub at: Time,
    /// The link's name.
    pub link: &'a Field,
    /// From the link's first node to its second.
    pub up: bool,
    /// Waiting packets.
    pub packets: usize,
    /// Waiting bytes, at the network layer.
    pub bytes: u64,
}

impl fmt::Display for QueueLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            link,
            packets,
            bytes,
            ..
        } = self;
        let (at, direction) = (Seconds(self.at), direction(self.up));
        write!(f, "{at},{link},{direction},{packets},{bytes}")
    }
}

/// The rate of the packets that come out of a link: a line of [`Kind::Rate`](super::Kind::Rate).
#[derive(Debug, Clone, Copy)]
pub struct RateLine<'a> {
    /// The end of the interval, since the start of the run.
    pub at: Time,
    /// The link's name.
    pub link: &'a Field,
    /// From the link's first node to its second.
    pub up: bool,
    /// Bytes in the interval, at the network layer.
    pub bytes: u64,
    /// Their rate in bit/s.
    pub bits_per_second: u64,
}

impl fmt::Display for RateLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            link,
            bytes,
            bits_per_second,
            ..
        } = self;
        let (at, direction) = (Seconds(self.at), direction(self.up));
        write!(f, "{at},{link},{direction},{bytes},{bits_per_second}")
    }
}

/// The name of a direction of a link.
pub(super) const fn direction(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}
