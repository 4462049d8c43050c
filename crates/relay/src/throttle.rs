//! Limits of a direction's writing, even if its outbound leg has room: pacing at the input of TCP (Shikama
//! §3.2), a cap of the data in flight, and the room of a leg on which data is sent ahead.
//!
//! Pure: the module [`super::transfer`] calls [`Throttle::allow`] before each write and reports how much it
//! read and wrote. No event of the kernel announces that writing may continue, so `allow` returns the time of
//! the next call. A direction reads only when it holds nothing, so nothing is read while chunks wait, and the
//! receive window of the inbound leg stops the sender.

mod handed;

use midspan_policy::InputPacing;
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

/// A chunk may be late by this much without delaying the next one: timers are late by some tens of
/// microseconds, and on a busy machine by more.
const LATENESS: TimeSpan = TimeSpan::from_milliseconds(1);
/// Higher rates are not paced here.
const UNPACED: u64 = 10_000_000_000;
/// Bounds of the time between two checks of the data in flight.
const SHORTEST_LOOK: TimeSpan = TimeSpan::from_milliseconds(1);
const LONGEST_LOOK: TimeSpan = TimeSpan::from_milliseconds(10);
/// Number of such checks per round trip.
const LOOKS: u64 = 64;
/// After this many of these times without any change, the peer has stalled, and checks become rarer by
/// the factor `RARER`: many peers that do not read must not cost much CPU time.
const STALLED: u64 = 4 * LOOKS;
const RARER: u64 = 10;

/// The owner of a cap; the lowest cap applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapBy {
    /// The session's policy.
    Policy,
    /// The profile of the client's access link.
    Profile,
}

/// The kernel's pacing rate: the lower of the rate of the session's policy, whose largest value
/// stands for none, and the rate of the client's access profile.
pub fn kernel_rate(policy: Option<BitRate>, profile: Option<BitRate>) -> Option<BitRate> {
    let policy = policy.filter(|rate| rate.bits_per_second() < u64::MAX);
    [policy, profile].into_iter().flatten().min()
}

/// The limits of one direction.
#[derive(Debug, Default)]
pub struct Throttle {
    pacing: Option<InputPacing>,
    /// The rest of a chunk that may already be written.
    permitted: u32,
    /// By [`CapBy`].
    caps: [Option<u64>; 2],
    /// Bytes that may be written until there is new room.
    room: Option<u64>,
    look: TimeSpan,
    /// The bytes in flight at the last check that found no room, and since when there are this many.
    full: (u64, Time),
}

impl Throttle {
    /// From now on, chunks of `segment_size` are written at this rate; `held` bytes already wait.
    pub fn set_rate(&mut self, rate: BitRate, segment_size: u32, header_size: u32, held: u32) {
        if rate.bits_per_second() >= UNPACED {
            (self.pacing, self.permitted) = (None, 0);
            return;
        }
        match &mut self.pacing {
            Some(pacing) => {
                pacing.set_rate(rate);
                pacing.set_segment_size(segment_size);
            }
            None => {
                let mut pacing =
                    InputPacing::new(rate, segment_size, header_size).with_lateness(LATENESS);
                pacing.handle_read(held.into());
                self.pacing = Some(pacing);
            }
        }
    }

    /// Paces the first flight.
    pub fn begin_flight(&mut self, flight: InputPacing) {
        self.pacing = Some(flight.with_lateness(LATENESS));
    }

    /// From now on, at most `cap` bytes are in flight. `round_trip` is the round-trip time.
    pub fn set_cap(&mut self, by: CapBy, cap: ByteSize, round_trip: Option<TimeSpan>) {
        self.caps[by as usize] = Some(cap.bytes());
        self.set_look(round_trip);
    }

    /// From now on, at most this many bytes are written, until there is new room. ACKs do not enlarge it: they show
    /// that data has arrived, but not that the peer has room for more.
    pub fn set_room(&mut self, room: u64, round_trip: Option<TimeSpan>) {
        self.room = Some(room);
        self.set_look(round_trip);
    }

    /// Removes the limit of the room; returns whether no limit is left.
    pub fn lift_room(&mut self) -> bool {
        self.room = None;
        self.is_idle()
    }

    fn set_look(&mut self, round_trip: Option<TimeSpan>) {
        let look = round_trip.unwrap_or_default() / LOOKS;
        self.look = look.clamp(SHORTEST_LOOK, LONGEST_LOOK);
    }

    /// Removes a cap; returns whether no limit is left.
    pub fn lift_cap(&mut self, by: CapBy) -> bool {
        self.caps[by as usize] = None;
        self.is_idle()
    }

    fn is_idle(&self) -> bool {
        self.pacing.is_none() && self.caps == [None; 2] && self.room.is_none()
    }

    /// This many bytes were read and are held.
    pub fn handle_read(&mut self, bytes: u32) {
        if let Some(pacing) = &mut self.pacing {
            pacing.handle_read(bytes.into());
        }
    }

    /// How many of the `held` bytes may be written now, or when to call again. `in_flight` is only
    /// called if there is a cap.
    pub fn allow(
        &mut self,
        now: Time,
        held: u32,
        in_flight: impl FnOnce() -> u64,
    ) -> Result<u32, Time> {
        let mut allowed = held;
        if let Some(pacing) = &mut self.pacing {
            if self.permitted == 0 {
                let Some(chunk) = pacing.poll_chunk(now, u64::MAX) else {
                    return Err(pacing.poll_timeout().unwrap_or(now + SHORTEST_LOOK));
                };
                self.permitted = u32::try_from(chunk).unwrap_or(u32::MAX);
            }
            allowed = allowed.min(self.permitted);
        }
        if let Some(cap) = self.caps.into_iter().flatten().min() {
            let in_flight = in_flight();
            let room = cap.saturating_sub(in_flight);
            let room = u32::try_from(room).unwrap_or(u32::MAX);
            if room == 0 {
                return Err(now + self.next_look(now, in_flight));
            }
            allowed = allowed.min(room);
        }
        if let Some(room) = self.room {
            if room == 0 {
                // New room comes with a reading of the leg, which has a time of its own.
                return Err(now + self.look * RARER);
            }
            allowed = allowed.min(u32::try_from(room).unwrap_or(u32::MAX));
        }
        Ok(allowed)
    }

    /// The time until the next check, while as much is in flight as the cap allows.
    fn next_look(&mut self, now: Time, in_flight: u64) -> TimeSpan {
        let (before, since) = self.full;
        if before != in_flight {
            self.full = (in_flight, now);
        } else if now.since(since) >= self.look * STALLED {
            return self.look * RARER;
        }
        self.look
    }

    /// This many bytes were written; returns whether no limit is left.
    pub fn handle_written(&mut self, bytes: u32) -> bool {
        self.permitted = self.permitted.saturating_sub(bytes);
        self.room = self.room.map(|room| room.saturating_sub(bytes.into()));
        if self.permitted == 0 {
            self.pacing.take_if(|pacing| pacing.is_over());
        }
        self.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> BitRate {
        text.parse().unwrap()
    }

    #[test]
    fn a_chunk_that_was_written_in_part_is_finished_at_once() {
        let mut throttle = Throttle::default();
        throttle.set_rate(rate("12 Mbit/s"), 1460, 40, 0);
        throttle.handle_read(3000);
        assert_eq!(throttle.allow(Time::ZERO, 3000, || 0), Ok(1460));
        throttle.handle_written(1000);
        assert_eq!(throttle.allow(Time::ZERO, 2000, || 0), Ok(460));
        throttle.handle_written(460);
        let next = Time::ZERO + TimeSpan::from_milliseconds(1);
        assert_eq!(throttle.allow(Time::ZERO, 1540, || 0), Err(next));
        assert_eq!(throttle.allow(next, 1540, || 0), Ok(1460));
    }

    #[test]
    fn what_is_held_when_pacing_begins_is_paced_too() {
        let mut throttle = Throttle::default();
        throttle.set_rate(rate("12 Mbit/s"), 1460, 40, 2000);
        let mut now = Time::ZERO;
        let mut held = 2000;
        while held > 0 {
            match throttle.allow(now, held, || 0) {
                Ok(bytes) => {
                    assert!(bytes <= 1460);
                    throttle.handle_written(bytes);
                    held -= bytes;
                }
                Err(next) => {
                    assert!(next > now);
                    now = next;
                }
            }
        }
        assert_eq!(now, Time::ZERO + TimeSpan::from_milliseconds(1));
    }

    #[test]
    fn a_rate_without_limit_ends_pacing() {
        let mut throttle = Throttle::default();
        throttle.set_rate(rate("1 kbit/s"), 1000, 40, 5000);
        assert_eq!(throttle.allow(Time::ZERO, 5000, || 0), Ok(1000));
        throttle.handle_written(1000);
        assert!(throttle.allow(Time::ZERO, 4000, || 0).is_err());
        throttle.set_rate(
            BitRate::from_bits_per_second(u64::MAX).unwrap(),
            1000,
            40,
            4000,
        );
        assert_eq!(throttle.allow(Time::ZERO, 4000, || 0), Ok(4000));
    }

    #[test]
    fn behind_its_first_flight_nothing_is_held_back() {
        let mut throttle = Throttle::default();
        let flight = InputPacing::new(rate("12 Mbit/s"), 1460, 40).of_flight(4380, 2920);
        throttle.begin_flight(flight);
        throttle.handle_read(10_000);
        assert_eq!(throttle.allow(Time::ZERO, 10_000, || 0), Ok(1460));
        assert!(!throttle.handle_written(1460));
        assert_eq!(throttle.allow(Time::ZERO, 8_540, || 0), Ok(1460));
        assert!(!throttle.handle_written(1460));
        let next = Time::ZERO + TimeSpan::from_milliseconds(1);
        assert_eq!(throttle.allow(Time::ZERO, 7_080, || 0), Err(next));
        assert_eq!(throttle.allow(next, 7_080, || 0), Ok(1460));
        assert!(!throttle.handle_written(1000));
        assert_eq!(throttle.allow(next, 6_080, || 0), Ok(460));
        assert!(throttle.handle_written(460));
        assert_eq!(throttle.allow(next, 5_620, || 0), Ok(5_620));
    }

    #[test]
    fn a_rate_that_comes_during_the_first_flight_stays() {
        let mut throttle = Throttle::default();
        let flight = InputPacing::new(rate("12 Mbit/s"), 1460, 40).of_flight(2920, 1460);
        throttle.begin_flight(flight);
        throttle.handle_read(10_000);
        throttle.set_rate(rate("6 Mbit/s"), 1460, 40, 10_000);
        let mut now = Time::ZERO;
        for _ in 0..4 {
            assert_eq!(throttle.allow(now, 10_000, || 0), Ok(1460));
            assert!(!throttle.handle_written(1460));
            now += TimeSpan::from_milliseconds(2);
        }
    }

    #[test]
    fn no_more_is_in_flight_than_the_cap() {
        let mut throttle = Throttle::default();
        let round_trip = TimeSpan::from_milliseconds(320);
        throttle.set_cap(
            CapBy::Policy,
            ByteSize::from_bytes(10_000),
            Some(round_trip),
        );
        assert_eq!(throttle.allow(Time::ZERO, 50_000, || 4_000), Ok(6_000));
        let next = Time::ZERO + TimeSpan::from_milliseconds(5);
        assert_eq!(throttle.allow(Time::ZERO, 50_000, || 10_000), Err(next));
        assert_eq!(
            throttle.allow(next, 50_000, || 20_000),
            Err(next + round_trip / 64)
        );
    }

    /// Whatever the peer acknowledges in between.
    #[test]
    fn no_more_is_written_than_there_is_room() {
        let mut throttle = Throttle::default();
        let round_trip = TimeSpan::from_milliseconds(320);
        throttle.set_room(10_000, Some(round_trip));
        assert_eq!(throttle.allow(Time::ZERO, 8_000, || 0), Ok(8_000));
        assert!(!throttle.handle_written(8_000));
        assert_eq!(throttle.allow(Time::ZERO, 8_000, || 0), Ok(2_000));
        assert!(!throttle.handle_written(2_000));
        let next = throttle.allow(Time::ZERO, 6_000, || 0).unwrap_err();
        assert!(next > Time::ZERO);
        throttle.set_room(3_000, Some(round_trip));
        assert_eq!(throttle.allow(next, 6_000, || 0), Ok(3_000));
        // A cap of the data in flight holds as well.
        let cap = ByteSize::from_bytes(5_000);
        throttle.set_cap(CapBy::Profile, cap, Some(round_trip));
        assert_eq!(throttle.allow(next, 6_000, || 4_000), Ok(1_000));
        assert!(!throttle.lift_cap(CapBy::Profile));
        assert!(throttle.lift_room());
        assert_eq!(throttle.allow(next, 6_000, || 0), Ok(6_000));
    }

    #[test]
    fn a_peer_that_has_stalled_is_checked_less_often() {
        let mut throttle = Throttle::default();
        let round_trip = TimeSpan::from_milliseconds(320);
        let cap = ByteSize::from_bytes(10_000);
        throttle.set_cap(CapBy::Profile, cap, Some(round_trip));
        let (mut now, mut checks) = (Time::ZERO, 0);
        while now.since(Time::ZERO) < round_trip * 100 {
            now = throttle.allow(now, 50_000, || 10_000).unwrap_err();
            checks += 1;
        }
        // Four round trips with 64 checks, and then one check in 50 ms.
        assert!((800..1_000).contains(&checks), "{checks}");
        // One change, and the next ones are expected soon.
        let next = throttle.allow(now, 50_000, || 10_500).unwrap_err();
        assert_eq!(next, now + round_trip / 64);
    }

    #[test]
    fn of_two_rates_the_lower_holds_and_one_that_is_lifted_leaves_the_other() {
        let unlimited = BitRate::from_bits_per_second(u64::MAX);
        let [low, high] = ["8 Mbit/s", "20 Mbit/s"].map(|text| Some(rate(text)));
        assert_eq!(kernel_rate(high, low), low);
        assert_eq!(kernel_rate(low, high), low);
        assert_eq!(kernel_rate(unlimited, low), low);
        assert_eq!(kernel_rate(None, low), low);
        assert_eq!(kernel_rate(high, None), high);
        assert_eq!(kernel_rate(unlimited, None), None);
        assert_eq!(kernel_rate(None, None), None);
    }

    #[test]
    fn of_two_caps_the_lower_holds_whichever_came_last() {
        for by in [
            [CapBy::Policy, CapBy::Profile],
            [CapBy::Profile, CapBy::Policy],
        ] {
            let mut throttle = Throttle::default();
            throttle.set_cap(by[0], ByteSize::from_bytes(10_000), None);
            throttle.set_cap(by[1], ByteSize::from_bytes(20_000), None);
            assert_eq!(throttle.allow(Time::ZERO, 50_000, || 4_000), Ok(6_000));
            throttle.set_cap(by[1], ByteSize::from_bytes(5_000), None);
            assert_eq!(throttle.allow(Time::ZERO, 50_000, || 4_000), Ok(1_000));
            assert!(!throttle.lift_cap(by[1]));
            assert_eq!(throttle.allow(Time::ZERO, 50_000, || 4_000), Ok(6_000));
            assert!(throttle.lift_cap(by[0]));
            assert_eq!(throttle.allow(Time::ZERO, 50_000, || 4_000), Ok(50_000));
        }
    }
}
