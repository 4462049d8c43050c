//! The synthetic sessions of one thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

use midspan_policy::{
    Handshake, LegSample, LegSettings, Offered, Policy, PolicyName, Request, SamplingPace,
    SessionId, SessionSample, SessionSettings, make,
};
use midspan_relay::SharedKnowledge;
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::Failure;
use crate::sockets::Sockets;

/// Sessions of one client, and bytes that a session moves in a second.
const OF_CLIENT: usize = 4;
const RATE: u64 = 40_000;
const ROUND_TRIP: TimeSpan = TimeSpan::from_milliseconds(600);

/// The sessions of one thread, and when each is sampled next.
pub struct Sessions<'a> {
    policy: Box<dyn Policy + Send>,
    /// `None`: each session is sampled at the interval of its policy.
    pace: Option<SamplingPace>,
    knowledge: SharedKnowledge,
    sockets: &'a Sockets,
    due: BinaryHeap<Reverse<(Time, usize)>>,
}

impl<'a> Sessions<'a> {
    /// Sessions with these numbers. Their first samples are spread over an interval.
    pub fn new(
        numbers: std::ops::Range<usize>,
        mut pace: Option<SamplingPace>,
        knowledge: SharedKnowledge,
        sockets: &'a Sockets,
    ) -> Result<Self, Failure> {
        let leg = PolicyName::Auto.leg(LegSettings::default());
        let settings = SessionSettings {
            policy: PolicyName::Auto,
            client: leg.clone(),
            server: leg,
            ..SessionSettings::default()
        };
        let policy = make(
            &settings,
            Handshake::Early,
            Offered {
                bbr: true,
                ..Offered::default()
            },
        );
        let count = numbers.len().max(1) as u64;
        let mut due = BinaryHeap::with_capacity(numbers.len());
        for (place, number) in (0_u64..).zip(numbers) {
            let interval = interval(&*policy, number)?;
            let begins = Time::from_nanoseconds(interval.nanoseconds() * place / count);
            let first = match &mut pace {
                Some(pace) => pace.next_sample(begins, interval),
                None => begins + interval,
            };
            due.push(Reverse((first, number)));
        }
        Ok(Self {
            policy,
            pace,
            knowledge,
            sockets,
            due,
        })
    }

    /// Makes all samples until this time; returns their number.
    pub fn run_until(&mut self, end: Time) -> Result<u64, Failure> {
        let mut samples = 0;
        while let Some(Reverse((now, number))) = self.due.peek().copied()
            && now < end
        {
            self.due.pop();
            self.sockets.read(number)?;
            let wanted = interval(&*self.policy, number)?;
            let present = match &self.pace {
                Some(pace) => pace.interval(now, wanted),
                None => wanted,
            };
            let sample = sample(now, number, present);
            self.policy.sample(now, &sample, &mut self.knowledge);
            let wanted = interval(&*self.policy, number)?;
            let next = match &mut self.pace {
                Some(pace) => pace.next_sample(now, wanted),
                None => now + wanted,
            };
            self.due.push(Reverse((next, number)));
            samples += 1;
        }
        Ok(samples)
    }
}

/// The interval of the policy for this session.
fn interval(policy: &dyn Policy, number: usize) -> Result<TimeSpan, Failure> {
    let interval = policy.sampling_interval(SessionId(number as u64));
    Ok(interval.ok_or("the policy wants no samples")?)
}

/// A download to a client behind a satellite, with a queue.
fn sample(now: Time, number: usize, interval: TimeSpan) -> SessionSample {
    let [client, server] = [0x0a00_0000, 0xc612_0000].map(|network: u32| {
        let host = u32::try_from(number / OF_CLIENT).unwrap_or_default();
        IpAddr::from(network.wrapping_add(host).to_be_bytes())
    });
    let port = 1024 + u16::try_from(number % 60_000).unwrap_or_default();
    let moved = now.nanoseconds() / 1_000_000 * RATE / 1000;
    let leg = LegSample {
        segment_size: 1448,
        congestion_window: 40,
        delivery_rate: BitRate::from_bits_per_second(RATE * 8),
        unacknowledged: 20,
        segments_sent: u32::try_from(moved / 1448).unwrap_or(u32::MAX),
        ..LegSample::default()
    };
    SessionSample {
        session: SessionId(number as u64),
        request: Some(Request {
            client: SocketAddr::new(client, port),
            server: SocketAddr::new(server, 443),
        }),
        interval,
        client: LegSample {
            round_trip_time: Some(ROUND_TRIP + TimeSpan::from_milliseconds(200)),
            minimum_round_trip_time: Some(ROUND_TRIP),
            bytes_acknowledged: ByteSize::from_bytes(moved),
            not_sent: ByteSize::from_bytes(50_000),
            ..leg
        },
        server: LegSample {
            round_trip_time: Some(TimeSpan::from_milliseconds(20)),
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(20)),
            bytes_received: ByteSize::from_bytes(moved),
            ..leg
        },
        ..SessionSample::default()
    }
}
