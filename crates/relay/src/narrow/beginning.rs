//! How a leg towards a narrow or a distant client begins, before anything is sent.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use midspan_linux::tcp::{self, Agreed, Repair};
use midspan_policy::automatic_ahead::{AcceptedLeg, AutomaticAhead};
use midspan_policy::learned_start::{LearnedStart, SEGMENT};
use midspan_policy::narrow_leg::NarrowClient;
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{AccessLink, LegSample, Policy, narrow_leg};
use midspan_units::{ByteSize, Time};

use super::report::NarrowReport;
use super::{NarrowLeg, Profiles};
use crate::knowledge::SharedKnowledge;
use crate::profile::{self, AccessProfile, HEADERS, SIX_HEADERS};
use crate::sample::sample;
use crate::throttle::kernel_rate;

impl NarrowLeg {
    /// Prepares the leg of an accepted client, to which nothing has been sent yet. `None` if no
    /// profile applies to this client, or none of the profile's measures can be used, and nothing is
    /// sent ahead without a profile. `window`: the start that was chosen at the SYN. If its initial window is that
    /// of a bounded start, or the kernel has raised it since then, the first flight has the segments of this bound: this holds
    /// even if the kernel refuses everything else. Also returns the number of options that the kernel refused.
    pub fn begin(
        socket: impl AsFd,
        client: IpAddr,
        profiles: &Profiles,
        (policy, known): (&mut dyn Policy, &mut SharedKnowledge),
        window: Option<LearnedStart>,
        now: Time,
    ) -> (Option<Box<Self>>, u64) {
        let socket = socket.as_fd();
        let place = profile::find(profiles.all(), client.to_canonical());
        let found = place.and_then(|place| Some((place, profiles.all().get(place)?)));
        let chosen = window.and_then(|start| start.bound);
        if found.is_none() && !policy.sends_ahead() && chosen.is_none() {
            return (None, 0);
        }
        let sample = match sample(socket) {
            Ok(sample) => sample,
            Err(error) => {
                tracing::debug!("a client is left as it is: {error}");
                let leg = Self::only_bounded(client, profiles, policy, chosen, now);
                return (leg.map(Box::new), 1);
            }
        };
        let bound = window.and_then(|start| match policy.sends_ahead() {
            true => start.raised(sample.congestion_window).bound,
            false => chosen,
        });
        let Some((place, profile)) = found else {
            let decides = (&mut *policy as &mut dyn Policy, known);
            let accepted = (&sample, bound);
            return match Self::prepare_long(socket, client, profiles, decides, accepted, now) {
                Ok((leg, errors)) => (leg.map(Box::new), errors),
                Err(error) => {
                    tracing::debug!("a long leg is left as it is: {error}");
                    let leg = Self::only_bounded(client, profiles, policy, bound, now);
                    (leg.map(Box::new), 1)
                }
            };
        };
        match Self::prepare(
            socket,
            client,
            profiles,
            (place, profile),
            policy,
            (&sample, bound),
            now,
        ) {
            Ok(leg) => (leg.map(Box::new), 0),
            Err(error) => {
                tracing::debug!(profile = profile.name, "a client is left as it is: {error}");
                let leg = Self::only_bounded(client, profiles, policy, bound, now);
                (leg.map(Box::new), 1)
            }
        }
    }

    /// Prepares the leg of a client without a profile, if the policy may send ahead of its window, or
    /// if its start is bounded. Also returns the number of options that the kernel refused.
    fn prepare_long(
        socket: BorrowedFd<'_>,
        client: IpAddr,
        profiles: &Profiles,
        (policy, known): (&mut dyn Policy, &mut SharedKnowledge),
        (sample, bound): (&LegSample, Option<u32>),
        now: Time,
    ) -> io::Result<(Option<Self>, u64)> {
        let mut leg = AcceptedLeg {
            round_trip: sample.round_trip_time.unwrap_or_default(),
            window: sample.peer_window,
            window_scale: 0,
            segment_size: sample.segment_size,
        };
        if !leg.is_long() && bound.is_none() {
            return Ok((None, 0));
        }
        let agreed = tcp::agreed(socket)?;
        leg.window_scale = agreed.peer_window_scale;
        let ahead = policy.ahead(now, client, &leg, known);
        let (ahead, errors) = match ahead.map(|ahead| raise_scale(socket, &agreed, ahead)) {
            None => (None, 0),
            Some(Ok(ahead)) => (Some(ahead), 0),
            // A relay without the capability works without sending ahead.
            Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => (None, 0),
            Some(Err(error)) => {
                tracing::debug!("nothing is sent ahead of a client's window: {error}");
                (None, 1)
            }
        };
        if ahead.is_none() && bound.is_none() {
            return Ok((None, errors));
        }
        let decides = policy.narrow(&NarrowClient {
            access: AccessLink::default(),
            segment_size: agreed.segment_size,
            window: sample.peer_window,
            window_scale: agreed.peer_window_scale,
            sizes: Arc::default(),
            start: OversizedStart::Probe,
            verdict: None,
            ahead,
            bound,
        });
        let mut leg = Self::new(client, profiles, decides, agreed.timestamps, now);
        leg.round_trip = sample.round_trip_time;
        // Nothing is in the send buffer yet.
        leg.set_room(sample, ByteSize::default());
        Ok((Some(leg), errors))
    }

    /// A leg on which nothing can be set. Its socket has the large initial window of a bounded start from the
    /// beginning, so the bound has to hold all the same. `None` if there is none.
    fn only_bounded(
        client: IpAddr,
        profiles: &Profiles,
        policy: &mut dyn Policy,
        bound: Option<u32>,
        now: Time,
    ) -> Option<Self> {
        bound?;
        let decides = policy.narrow(&NarrowClient {
            access: AccessLink::default(),
            segment_size: SEGMENT,
            window: 0,
            window_scale: 0,
            sizes: Arc::default(),
            start: OversizedStart::Probe,
            verdict: None,
            ahead: None,
            bound,
        });
        Some(Self::new(client, profiles, decides, false, now))
    }

    /// A leg without a profile.
    pub(super) fn new(
        client: IpAddr,
        profiles: &Profiles,
        decides: narrow_leg::NarrowLeg,
        has_timestamps: bool,
        now: Time,
    ) -> Self {
        let is_four = client.to_canonical().is_ipv4();
        Self {
            profiles: profiles.clone(),
            place: None,
            client,
            decides,
            marks: Vec::new(),
            is_four,
            own_mark: 0,
            ack_size: acknowledgement_size(is_four, has_timestamps),
            last_moved: now,
            round_trip: None,
            room: None,
            next_look: None,
            counted: None,
            was_ahead: false,
            report: NarrowReport::default(),
        }
    }

    fn prepare(
        socket: BorrowedFd<'_>,
        client: IpAddr,
        profiles: &Profiles,
        (place, profile): (usize, &AccessProfile),
        policy: &mut dyn Policy,
        (sample, bound): (&LegSample, Option<u32>),
        now: Time,
    ) -> std::io::Result<Option<Self>> {
        let agreed = tcp::agreed(socket)?;
        let inherited = tcp::mark(socket)?;
        let is_four = client.to_canonical().is_ipv4();
        let marks = profiles.marks().oversized(profile, is_four);
        let sizes: Vec<u32> = marks.iter().map(|(size, _)| *size).collect();
        // The client's own size, and the mark that holds segments down to it.
        let headers = if is_four { HEADERS } else { SIX_HEADERS };
        let own = match agreed.path_mtu {
            Some(mtu) if agreed.segment_size + headers >= mtu => {
                Some((agreed.segment_size, inherited))
            }
            Some(_) if is_four => profiles.marks().small(agreed.segment_size),
            // No mark would limit segments to the size that an IPv6 client advertised.
            Some(_) | None => None,
        };
        let decides = policy.narrow(&NarrowClient {
            access: profile.link(),
            segment_size: own.map_or(agreed.segment_size, |(own, _)| own),
            window: sample.peer_window,
            window_scale: agreed.peer_window_scale,
            sizes: own.map(|_| sizes).unwrap_or_default().into(),
            start: OversizedStart::Probe,
            verdict: profiles.verdicts.of(client),
            ahead: None,
            bound,
        });
        let start = decides.start();
        let own = own.filter(|_| start.segment_ceiling.is_some());
        if let Some(size) = start.send_buffer {
            tcp::set_send_buffer(socket, size)?;
        }
        let added_scale = start.added_scale;
        // A client that is left as it is has its ACKs counted all the same.
        if own.is_some() || added_scale > 0 {
            tcp::repair(
                socket,
                Repair {
                    segment_ceiling: start.segment_ceiling.and_then(|it| u16::try_from(it).ok()),
                    window_scales: (added_scale > 0).then(|| {
                        let peer = agreed.peer_window_scale + added_scale;
                        (peer, agreed.own_window_scale)
                    }),
                    window: None,
                },
            )?;
        }
        let own_mark = own.map_or(inherited, |(_, mark)| mark);
        if own_mark != inherited {
            tcp::set_mark(socket, own_mark)?;
        }
        if start.pacing_rate.is_some() {
            // The leg may have been set up with a rate already.
            let rate = kernel_rate(tcp::pacing_rate(socket)?, start.pacing_rate);
            tcp::set_pacing_rate(socket, rate)?;
        }
        let mut leg = Self {
            place: Some(place),
            marks,
            own_mark,
            ..Self::new(client, profiles, decides, agreed.timestamps, now)
        };
        leg.take_in(socket, sample, now)?;
        Ok(Some(leg))
    }
}

/// Raises the scale with which the client's window is read, for sending ahead.
///
/// # Errors
/// Those of `setsockopt(2)`; then the scale is as before.
fn raise_scale(
    socket: BorrowedFd<'_>,
    agreed: &Agreed,
    ahead: AutomaticAhead,
) -> io::Result<AutomaticAhead> {
    let scale = |added| {
        let peer = agreed.peer_window_scale + added;
        Some((peer, agreed.own_window_scale))
    };
    let raised = Repair {
        window_scales: scale(ahead.added_scale()),
        window: u32::try_from(ahead.scaled_window()).ok(),
        ..Repair::default()
    };
    if let Err(error) = tcp::repair(socket, raised) {
        // Without a cap, the scale must not stay raised.
        let back = Repair {
            window_scales: scale(0),
            ..Repair::default()
        };
        let _ = tcp::repair(socket, back);
        return Err(error);
    }
    Ok(ahead)
}

/// Bytes of an ACK without data and without SACK blocks, from its IP header on.
const fn acknowledgement_size(is_four: bool, timestamps: bool) -> u32 {
    let headers = if is_four { HEADERS } else { SIX_HEADERS };
    headers + if timestamps { 12 } else { 0 }
}
