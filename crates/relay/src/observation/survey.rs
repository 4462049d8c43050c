//! A survey: some figures of every live session of a thread, for `midspan top` and the summary.
//!
//! A thread surveys its sessions in slices between two turns of its loop, so that no data waits for the whole
//! survey. It sends the figures of each slice to the thread that requested the survey, which sorts and adds
//! them up.
//!
//! A rate needs two readings. While surveys are made, the thread keeps the last reading of each session. It
//! replaces a reading after [`INTERVAL`] at the earliest. It does not read `TCP_INFO` again if the session
//! has moved no data since and none waited. The thread also keeps the last [`ENDED_LIMIT`] sessions that
//! ended. It forgets all this [`FORGET_AFTER`] after the last survey.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use midspan_policy::SessionSample;
use midspan_units::{Time, TimeSpan};
use tokio::sync::mpsc::UnboundedSender;

use super::held_by::{HeldBy, LegReading, held_by};
use super::{Ending, Record, ReportedPhase};

/// Least time between two readings of which rates are made.
pub const INTERVAL: TimeSpan = TimeSpan::from_milliseconds(900);
/// How long the readings are kept after a survey.
pub const FORGET_AFTER: TimeSpan = TimeSpan::from_seconds(60);
/// Most indices of the table in one slice.
pub const SESSIONS_IN_SLICE: usize = 1024;
/// Longest time of one slice.
pub const SLICE_LIMIT: Duration = Duration::from_micros(500);
/// After how many sessions the time of a slice is checked. Reading 16 sessions takes about 50 µs.
pub const SESSIONS_PER_CHECK: usize = 16;

/// Most sessions of a thread that ended and are kept.
pub const ENDED_LIMIT: usize = 100;

/// The direction in which a session moves more data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// A download.
    #[default]
    ToClient,
    /// An upload.
    ToServer,
}

/// Rates, and what held a session back, between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// Bit/s towards the client.
    pub rate_to_client: u64,
    /// Bit/s towards the server.
    pub rate_to_server: u64,
    /// The direction with more bytes in this time.
    pub direction: Direction,
    /// What held this direction back; `None` if neither leg had data.
    pub held_by: Option<HeldBy>,
}

/// The figures of one session.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The session's number.
    pub id: u64,
    /// Name of its listener.
    pub listener: Arc<str>,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// The server's name, if the client gave one: `host:port`.
    pub destination: Option<Box<str>>,
    /// The phase of its life.
    pub phase: ReportedPhase,
    /// Time since the client's first segment.
    pub age: TimeSpan,
    /// Whether the client leg has a learned start; `None` if no start was selected.
    pub start: Option<bool>,
    /// Bytes handed to the kernel towards the client.
    pub bytes_to_client: u64,
    /// Bytes handed to the kernel towards the server.
    pub bytes_to_server: u64,
    /// `None` on the first survey of the session.
    pub moved: Option<Moved>,
    /// The leg towards the client.
    pub client_leg: LegReading,
    /// The leg towards the server.
    pub server_leg: LegReading,
}

/// A session that has ended.
#[derive(Debug, Clone)]
pub struct EndedFigures {
    /// The session's number.
    pub id: u64,
    /// Name of its listener.
    pub listener: Arc<str>,
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// The server's name, if the client gave one: `host:port`.
    pub destination: Option<Box<str>>,
    /// How it ended.
    pub ending: Ending,
    /// When it ended, on the relay's clock.
    pub at: Time,
    /// How long it lasted, from the client's first segment on.
    pub lasted: TimeSpan,
    /// Bytes handed to the kernel towards the client.
    pub bytes_to_client: u64,
    /// Bytes handed to the kernel towards the server.
    pub bytes_to_server: u64,
}

/// What a thread sends.
#[derive(Debug)]
pub enum Part {
    /// The figures of a slice.
    Slice(Vec<Figures>),
    /// The survey of this thread is complete; the sessions that have ended.
    Done(Cost, Vec<EndedFigures>),
}

/// The time that a survey took a relay's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Slices.
    pub slices: u64,
    /// Their time together.
    pub time: Duration,
    /// The time of the longest.
    pub longest: Duration,
}

impl Cost {
    /// Adds a slice.
    pub fn add(&mut self, time: Duration) {
        self.slices += 1;
        self.time += time;
        self.longest = self.longest.max(time);
    }

    /// Adds the cost in another thread.
    pub fn join(&mut self, other: Self) {
        self.slices += other.slices;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
    }
}

/// The last reading of a session.
#[derive(Debug, Clone, Default)]
struct Mark {
    /// The session's number; 0 for none.
    id: u64,
    at: Time,
    bytes: [u64; 2],
    legs: [LegReading; 2],
    moved: Option<Moved>,
}

impl Mark {
    /// Whether `TCP_INFO` must be read again: data has moved, or waited at the last reading.
    fn is_old(&self, bytes: [u64; 2]) -> bool {
        self.bytes != bytes || self.legs.iter().any(|leg| leg.has_data)
    }

    /// Takes another reading of the session: bytes in both directions, and both legs unless nothing
    /// moved.
    fn update(&mut self, at: Time, bytes: [u64; 2], legs: Option<[LegReading; 2]>) {
        let passed = at.since(self.at);
        let moved = [0, 1].map(|way| bytes[way].saturating_sub(self.bytes[way]));
        let direction = match moved[1] > moved[0] {
            true => Direction::ToServer,
            false => Direction::ToClient,
        };
        let sender = usize::from(direction == Direction::ToServer);
        let had_data = moved != [0, 0] || self.legs.iter().any(|leg| leg.has_data);
        let now = legs.unwrap_or(self.legs);
        let [rate_to_client, rate_to_server] = moved.map(|bytes| rate(bytes, passed));
        self.moved = Some(Moved {
            rate_to_client,
            rate_to_server,
            direction,
            held_by: had_data
                .then(|| held_by(&self.legs[sender], &now[sender], passed))
                .flatten(),
        });
        self.at = at;
        self.bytes = bytes;
        self.legs = now;
    }
}

/// Bit/s.
fn rate(bytes: u64, passed: TimeSpan) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    let rate = bits.checked_div(passed.nanoseconds().into());
    u64::try_from(rate.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The surveys of a thread.
#[derive(Debug, Default)]
pub struct Surveys {
    /// Those that have asked, the oldest first.
    waiting: Vec<UnboundedSender<Part>>,
    /// The next place of the survey that is being made.
    place: usize,
    cost: Cost,
    /// By place of the session's table.
    marks: Vec<Mark>,
    /// The sessions that have ended, the oldest first.
    ended: VecDeque<EndedFigures>,
    /// Whether a survey was requested, and the readings are not forgotten yet.
    is_watched: bool,
    last: Time,
}

impl Surveys {
    /// Requests a survey.
    pub fn ask(&mut self, reply: UnboundedSender<Part>) {
        self.waiting.push(reply);
        self.is_watched = true;
    }

    /// Whether a survey is being made.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When the readings are to be forgotten.
    pub fn forget_at(&self) -> Option<Time> {
        (self.is_watched && !self.is_busy()).then(|| self.last + FORGET_AFTER)
    }

    /// Forgets the readings if no process has requested a survey for long.
    pub fn forget(&mut self, now: Time) {
        if self.forget_at().is_some_and(|at| at <= now) {
            self.marks = Vec::new();
            self.ended = VecDeque::new();
            self.is_watched = false;
        }
    }

    /// A session has ended. It is kept only while surveys are made.
    pub fn note_end(&mut self, ended: impl FnOnce() -> EndedFigures) {
        if !self.is_watched {
            return;
        }
        if self.ended.len() >= ENDED_LIMIT {
            self.ended.pop_front();
        }
        self.ended.push_back(ended());
    }

    /// The next place to look at, in a table with this many; `None` at the end of the survey.
    pub fn next_place(&mut self, places: usize) -> Option<usize> {
        if self.place == 0 {
            let missing = places.saturating_sub(self.marks.len());
            self.marks.reserve_exact(missing);
        }
        let place = self.place;
        self.place += 1;
        (place < places).then_some(place)
    }

    /// Takes the reading of the session at a place; `read` reads both legs.
    pub fn visit(
        &mut self,
        place: usize,
        (id, record): (u64, &Record),
        now: Time,
        read: impl FnOnce() -> Option<SessionSample>,
    ) -> (Option<Moved>, [LegReading; 2]) {
        while self.marks.len() <= place {
            self.marks.push(Mark::default());
        }
        let Some(mark) = self.marks.get_mut(place) else {
            return (None, [LegReading::default(); 2]);
        };
        let bytes = [record.bytes_to_client, record.bytes_to_server];
        let legs = |sample: SessionSample| [(&sample.client).into(), (&sample.server).into()];
        if mark.id != id {
            *mark = Mark {
                id,
                at: now,
                bytes,
                legs: read().map(legs).unwrap_or_default(),
                moved: None,
            };
        } else if now.since(mark.at) >= INTERVAL {
            let legs = mark.is_old(bytes).then(read).flatten().map(legs);
            mark.update(now, bytes, legs);
        }
        (mark.moved, mark.legs)
    }

    /// Sends the figures of a slice, which took this long. The survey continues unless it `is_whole`.
    pub fn send(&mut self, figures: Vec<Figures>, took: Duration, is_whole: bool, now: Time) {
        self.cost.add(took);
        let Some(reply) = self.waiting.first() else {
            return;
        };
        let is_gone = reply.send(Part::Slice(figures)).is_err();
        if is_whole {
            let ended = self.ended.iter().cloned().collect();
            let _ = reply.send(Part::Done(self.cost, ended));
        }
        if is_whole || is_gone {
            self.waiting.remove(0);
            self.place = 0;
            self.cost = Cost::default();
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn leg(busy: u64, has_data: bool) -> LegReading {
        LegReading {
            busy: TimeSpan::from_milliseconds(busy),
            has_data,
            ..LegReading::default()
        }
    }

    #[test]
    fn rates_are_of_the_time_between_two_readings() {
        let mut mark = Mark {
            id: 1,
            at: at(1000),
            bytes: [500, 0],
            legs: [leg(0, true), leg(0, false)],
            moved: None,
        };
        let legs = [leg(1000, true), leg(10, false)];
        mark.update(at(3000), [1_000_500, 250], Some(legs));
        let moved = mark.moved.unwrap();
        assert_eq!(moved.rate_to_client, 4_000_000);
        assert_eq!(moved.rate_to_server, 1000);
        assert_eq!(moved.direction, Direction::ToClient);
        let held = moved.held_by.unwrap();
        assert!((held.link - 0.5).abs() < 1e-6 && (held.source - 0.5).abs() < 1e-6);
        // An upload: the server leg sends.
        let legs = [leg(1000, false), leg(2010, true)];
        mark.update(at(5000), [1_000_500, 1_000_250], Some(legs));
        let moved = mark.moved.unwrap();
        assert_eq!(moved.direction, Direction::ToServer);
        assert!((moved.held_by.unwrap().link - 1.0).abs() < 1e-6);
        // It stops, with data in the socket; what holds it back is still of interest.
        assert!(mark.is_old([1_000_500, 1_000_250]));
        mark.update(at(6000), mark.bytes, Some([leg(1000, false); 2]));
        assert!(mark.moved.unwrap().held_by.is_some());
        assert!(!mark.is_old(mark.bytes));
        mark.update(at(7000), mark.bytes, None);
        let moved = mark.moved.unwrap();
        assert_eq!((moved.rate_to_client, moved.held_by), (0, None));
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(rate(u64::MAX, TimeSpan::from_nanoseconds(1)), u64::MAX);
        assert_eq!(rate(1, TimeSpan::ZERO), 0);
    }

    #[test]
    fn readings_are_forgotten_when_nobody_asks() {
        let mut surveys = Surveys::default();
        assert_eq!(surveys.forget_at(), None);
        let (reply, mut parts) = tokio::sync::mpsc::unbounded_channel();
        surveys.ask(reply);
        assert_eq!(surveys.next_place(2), Some(0));
        surveys.send(Vec::new(), Duration::from_micros(3), false, at(1));
        assert!(surveys.is_busy());
        assert_eq!(surveys.next_place(2), Some(1));
        assert_eq!(surveys.next_place(2), None);
        surveys.send(Vec::new(), Duration::from_micros(5), true, at(2));
        assert!(!surveys.is_busy());
        assert!(matches!(parts.try_recv(), Ok(Part::Slice(_))));
        assert!(matches!(parts.try_recv(), Ok(Part::Slice(_))));
        let Ok(Part::Done(cost, _)) = parts.try_recv() else {
            panic!("not done");
        };
        assert_eq!((cost.slices, cost.longest), (2, Duration::from_micros(5)));
        assert_eq!(surveys.forget_at(), Some(at(2) + FORGET_AFTER));
        surveys.forget(at(1000));
        assert!(surveys.forget_at().is_some());
        surveys.forget(at(100_000));
        assert_eq!(surveys.forget_at(), None);
    }

    fn ended(id: u64) -> EndedFigures {
        EndedFigures {
            id,
            listener: "web".into(),
            client: "192.0.2.1:1000".parse().unwrap(),
            server: "198.51.100.1:80".parse().unwrap(),
            destination: None,
            ending: Ending::Closed,
            at: at(id),
            lasted: TimeSpan::from_seconds(1),
            bytes_to_client: 1,
            bytes_to_server: 2,
        }
    }

    /// Nothing is kept for an operator who does not ask.
    #[test]
    fn sessions_that_end_are_kept_while_surveys_are_made() {
        let mut surveys = Surveys::default();
        surveys.note_end(|| panic!("kept"));
        let kept = |surveys: &mut Surveys| {
            let (reply, mut parts) = tokio::sync::mpsc::unbounded_channel();
            surveys.ask(reply);
            while surveys.next_place(1).is_some() {}
            surveys.send(Vec::new(), Duration::ZERO, true, at(2));
            let Ok(Part::Slice(_)) = parts.try_recv() else {
                panic!("no slice");
            };
            let Ok(Part::Done(_, ended)) = parts.try_recv() else {
                panic!("not done");
            };
            ended.iter().map(|ended| ended.id).collect::<Vec<_>>()
        };
        assert!(kept(&mut surveys).is_empty());
        for id in 1..=103 {
            surveys.note_end(|| ended(id));
        }
        let numbers = kept(&mut surveys);
        assert_eq!(
            (numbers.len(), numbers[0], numbers[99]),
            (ENDED_LIMIT, 4, 103)
        );
        surveys.forget(at(100_000));
        surveys.note_end(|| panic!("kept"));
        assert!(kept(&mut surveys).is_empty());
    }

    /// A client that has gone ends its survey.
    #[test]
    fn who_does_not_wait_gets_no_survey() {
        let mut surveys = Surveys::default();
        let (reply, parts) = tokio::sync::mpsc::unbounded_channel();
        surveys.ask(reply);
        drop(parts);
        surveys.send(Vec::new(), Duration::ZERO, false, at(1));
        assert!(!surveys.is_busy());
    }
}
