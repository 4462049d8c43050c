//! Bounds the rates of sessions that share a bottleneck, so that its queue stays short.
//!
//! Twenty downloads through one satellite link fill its queue, each with its own congestion
//! control. Other traffic on the link waits behind them or loses packets. The proxy sees all
//! twenty. Sessions are treated as sharing a bottleneck if their clients are in one network (an
//! IPv4 /24, an IPv6 /48), they deliver at the same time over long legs, and *all* of them see a
//! queue. A link with a queue is never idle, so the link's capacity is what these sessions deliver
//! together while the queue stands. That capacity, times a gain that falls as the queue grows, is
//! divided among the sessions with data waiting (max-min fairness: what one session does not use is
//! left to the others). So the data in flight to that network (rate times round trip) is bounded as a
//! whole.
//!
//! If the queue stays although all sessions are held back, other traffic causes it: then the bound
//! is lifted for a while.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_units::{BitRate, Time, TimeSpan};

use crate::congestion::LONG;
use crate::part_limit::part_limit;
use crate::prefix::site_prefix;
use crate::{LegSample, SessionId};

/// Largest number of watched networks, if the memory is not divided, and of watched sessions in one
/// network.
const NETWORKS: usize = 4096;
const SESSIONS: usize = 1024;
/// Shortest and longest window of a measurement. Between them, a window lasts the shortest round
/// trip of the sessions. Where readings are rare, a window lasts two of their intervals.
const SHORTEST_WINDOW: TimeSpan = TimeSpan::from_milliseconds(200);
const LONGEST_WINDOW: TimeSpan = TimeSpan::from_seconds(1);
/// A session that delivered fewer segments in a window is no evidence of the queue.
const EVIDENCE: u64 = 5;
/// A session that starts behind a standing queue includes it in its minimum round trip. For its
/// first `YOUNG` windows, an older session's measurement is preferred.
const YOUNG: u8 = 5;
/// The number 1, in gains and in queues. A queue is a multiple of the minimum round trip.
const ONE: u64 = 1024;
/// Lengths of the queue: the one at which sessions are held (`TARGET`), the one from which on they
/// are held back (`BEGIN`), the one from which on the link counts as busy (`BUSY`), and the one
/// above which the queue is too long (`TOO_LONG`).
const TARGET: u64 = ONE / 8;
const BEGIN: u64 = ONE / 4;
const BUSY: u64 = ONE / 16;
const TOO_LONG: u64 = ONE / 2;
/// The gain without a queue, and the lowest gain.
const FILLING_GAIN: u64 = ONE + ONE / 10;
const DRAINING_GAIN: u64 = ONE * 6 / 10;
/// How much the gain falls above the target: by the queue's excess divided by this.
const DRAINING: u64 = 4;
/// The newest window's weight in the capacity, as a divisor: where the window delivered more than
/// the capacity (`RISING`), and where it delivered less (`FALLING`). After a loss little is
/// acknowledged until the gap is filled, so a lower figure counts less.
const RISING: u64 = 2;
const FALLING: u64 = 16;
/// After this many windows in a row in which at most one session delivered enough, no session is
/// held back any more. It takes several, because the objects of a web page come with pauses.
const ALONE: u8 = 4;
/// After `FUTILE` windows in a row with too long a queue, no session is held back for `LIFTED`
/// windows.
const FUTILE: u8 = 16;
const LIFTED: u8 = 64;
/// The shortest round trip of no session at all.
const NO_SESSION: TimeSpan = TimeSpan::from_nanoseconds(u64::MAX);
/// The lowest rate that a session is held to, in bit/s.
const LEAST: u64 = 100_000;

/// The paths that sessions may share, by the network of their clients.
///
/// Call [`handle_sample`](Self::handle_sample) for each session: it returns the bound of that
/// session's rate. Call [`forget`](Self::forget) when a session ends.
#[derive(Debug, Clone)]
pub struct SharedPaths {
    paths: BTreeMap<IpNet, SharedPath>,
    /// Largest number of watched networks.
    limit: usize,
}

impl Default for SharedPaths {
    fn default() -> Self {
        Self::part_of(1)
    }
}

#[derive(Debug, Clone)]
struct SharedPath {
    begin: Time,
    sessions: BTreeMap<SessionId, Member>,
    /// The shortest round trip of the sessions.
    shortest: TimeSpan,
    /// The interval of readings.
    interval: TimeSpan,
    /// In bit/s; 0 while it is unknown.
    capacity: u64,
    is_bounded: bool,
    alone: u8,
    futile: u8,
    lifted: u8,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    /// Bytes acknowledged when the window began, and now.
    before: u64,
    acknowledged: u64,
    segment_size: u64,
    round_trip: TimeSpan,
    /// Windows since the session began, up to [`YOUNG`].
    age: u8,
    /// The queue as a multiple of the minimum round trip, in units of 1/[`ONE`].
    queue: u64,
    /// Whether data waited to be sent in this window.
    waits: bool,
    /// In the last complete window, in bit/s.
    rate: u64,
    share: Option<u64>,
}

impl SharedPaths {
    /// One of `parts` parts of a divided memory.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            paths: BTreeMap::new(),
            limit: part_limit(NETWORKS, parts),
        }
    }

    /// Whether the sessions of a leg like this can share a bottleneck here: only long legs.
    #[must_use]
    pub fn concern(leg: &LegSample) -> bool {
        leg.round_trip_time.is_some() && leg.minimum_round_trip_time.is_some_and(|it| it >= LONG)
    }

    /// Takes a reading of the leg towards a client, whether data waits to be sent on it, and the
    /// interval of such readings (zero if it is unknown). Returns the highest rate that the session may
    /// have; `None`: no bound.
    pub fn handle_sample(
        &mut self,
        now: Time,
        client: IpAddr,
        session: SessionId,
        leg: &LegSample,
        (waits, interval): (bool, TimeSpan),
    ) -> Option<BitRate> {
        let (time, least) = (leg.round_trip_time?, leg.minimum_round_trip_time?);
        if !Self::concern(leg) {
            return None;
        }
        let network = site_prefix(client);
        if self.paths.len() >= self.limit && !self.paths.contains_key(&network) {
            return None;
        }
        let path = (self.paths.entry(network)).or_insert_with(|| SharedPath::new(now));
        if path.sessions.len() >= SESSIONS && !path.sessions.contains_key(&session) {
            return None;
        }
        let acknowledged = leg.bytes_acknowledged.bytes();
        let queue = time.nanoseconds().saturating_sub(least.nanoseconds());
        let queue = u128::from(queue) * u128::from(ONE) / u128::from(least.nanoseconds());
        let member = path.sessions.entry(session).or_insert(Member {
            before: acknowledged,
            acknowledged,
            segment_size: 0,
            round_trip: least,
            age: 0,
            queue: 0,
            waits: false,
            rate: 0,
            share: None,
        });
        member.acknowledged = acknowledged.max(member.acknowledged);
        member.segment_size = u64::from(leg.segment_size.max(1));
        let before = std::mem::replace(&mut member.round_trip, least);
        member.queue = u64::try_from(queue).unwrap_or(u64::MAX);
        member.waits |= waits;
        path.interval = interval;
        path.handle_round_trip(before, least);
        let elapsed = now.since(path.begin);
        if elapsed >= path.window() {
            path.end_window(now, elapsed);
        }
        let share = path.sessions.get(&session)?.share?;
        BitRate::from_bits_per_second(share.max(LEAST))
    }

    /// A session with this client has ended.
    pub fn forget(&mut self, client: IpAddr, session: SessionId) {
        let network = site_prefix(client);
        if let Some(path) = self.paths.get_mut(&network) {
            if let Some(member) = path.sessions.remove(&session) {
                path.handle_round_trip(member.round_trip, NO_SESSION);
            }
            if path.sessions.is_empty() {
                self.paths.remove(&network);
            }
        }
    }

    /// Number of watched networks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether no network is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

impl SharedPath {
    fn new(now: Time) -> Self {
        Self {
            begin: now,
            sessions: BTreeMap::new(),
            shortest: NO_SESSION,
            interval: TimeSpan::ZERO,
            capacity: 0,
            is_bounded: false,
            alone: ALONE,
            futile: 0,
            lifted: 0,
        }
    }

    fn window(&self) -> TimeSpan {
        let window = self.shortest.clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        window.max(self.interval * 2)
    }

    /// The round trip of a session has changed, or the session has ended. Usually this takes no pass
    /// through all sessions.
    fn handle_round_trip(&mut self, before: TimeSpan, now: TimeSpan) {
        if now <= self.shortest {
            self.shortest = now;
        } else if before <= self.shortest {
            let all = self.sessions.values().map(|member| member.round_trip);
            self.shortest = all.min().unwrap_or(NO_SESSION);
        }
    }

    fn end_window(&mut self, now: Time, elapsed: TimeSpan) {
        self.begin = now;
        let mut total = 0_u64;
        let mut evident = 0;
        let mut queues = [None; 2];
        for member in self.sessions.values_mut() {
            let before = std::mem::replace(&mut member.before, member.acknowledged);
            let bytes = member.acknowledged - before;
            let rate = BitRate::from_transfer(bytes, elapsed);
            member.rate = rate.map_or(0, BitRate::bits_per_second);
            total = total.saturating_add(member.rate);
            if bytes >= EVIDENCE * member.segment_size {
                evident += 1;
                let shortest = &mut queues[usize::from(member.age < YOUNG)];
                *shortest = Some(shortest.map_or(member.queue, |it: u64| it.min(member.queue)));
            }
            member.age = (member.age + 1).min(YOUNG);
        }
        let [old, young] = queues;
        let queue = old.or(young).unwrap_or_default();
        self.alone = match evident {
            // One session alone does not show whether its queue is shared.
            0 | 1 => self.alone.saturating_add(1).min(ALONE),
            _ => 0,
        };
        if self.alone >= ALONE || elapsed > self.window() * 4 {
            (self.is_bounded, self.capacity) = (false, 0);
        } else if evident > 0 {
            self.handle_queue(queue, total, evident > 1);
        }
        // While no session delivers enough to judge the queue, the last shares stay.
        let is_silent = evident == 0 && self.is_bounded;
        match self.is_bounded {
            _ if is_silent => {}
            true => self.divide(scaled(self.capacity, gain(queue))),
            false => self.sessions.values_mut().for_each(|it| it.share = None),
        }
        for member in self.sessions.values_mut() {
            member.waits = false;
        }
    }

    fn handle_queue(&mut self, queue: u64, total: u64, is_shared: bool) {
        let capacity = self.capacity;
        self.capacity = match total > capacity {
            true if capacity == 0 => total,
            true => capacity + (total - capacity) / RISING,
            // The link is not busy and could carry more.
            false if queue < BUSY => capacity,
            false => capacity - (capacity - total) / FALLING,
        };
        self.lifted = self.lifted.saturating_sub(1);
        self.futile = match self.is_bounded && queue > TOO_LONG {
            true => self.futile + 1,
            false => 0,
        };
        if self.futile >= FUTILE {
            (self.futile, self.lifted, self.is_bounded) = (0, LIFTED, false);
        }
        let begins = is_shared && self.lifted == 0 && queue >= BEGIN;
        self.is_bounded |= begins;
    }

    /// Divides a rate (bit/s) among the sessions that have data waiting, by max-min fairness.
    fn divide(&mut self, rate: u64) {
        let mut left = rate;
        let mut wanted = Vec::new();
        for (session, member) in &self.sessions {
            if !member.waits {
                left = left.saturating_sub(member.rate);
                continue;
            }
            // A session that does not use its share yet may double its rate.
            let uses = member
                .share
                .is_none_or(|share| member.rate >= share / 4 * 3);
            let want = if uses {
                u64::MAX
            } else {
                member.rate.saturating_mul(2)
            };
            wanted.push((want, *session));
        }
        wanted.sort_unstable();
        let mut count = wanted.len() as u64;
        for (want, session) in wanted {
            let even = left / count;
            // Half an even share at least: a session without any rate must be able to begin.
            let share = want.max(even / 2).min(even);
            left -= share;
            count -= 1;
            if let Some(member) = self.sessions.get_mut(&session) {
                member.share = Some(share);
            }
        }
        for member in self.sessions.values_mut().filter(|member| !member.waits) {
            member.share = None;
        }
    }
}

/// The gain for all sessions together: their rate as a multiple of the link's capacity, in units of
/// 1/[`ONE`].
fn gain(queue: u64) -> u64 {
    match queue {
        queue if queue < TARGET => FILLING_GAIN - (FILLING_GAIN - ONE) * queue / TARGET,
        queue => (ONE.saturating_sub((queue - TARGET) / DRAINING)).max(DRAINING_GAIN),
    }
}

fn scaled(rate: u64, gain: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(gain) / u128::from(ONE)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
