//! Links, and how a packet gets from one link to the next.
//!
//! If a link gets its packets from only one other link, and neither changes over time, the fate of
//! a packet on the second is known as soon as its fate on the first is known. The two links are
//! then *joined*: a packet passes both in one step, without an event in between. The results are
//! the same as with one event for each link (a test compares them).

mod directed;

pub(crate) use directed::Directed;

use std::collections::VecDeque;

use midspan_link::{
    Body, Counters, Discipline, DropReason, Entering, LossProcess, Output, PolledCounters,
    PolledMedium, Queue as _, Verdict, Waiting,
};
use midspan_units::Time;

use crate::engine::Schedule;
use crate::packet::Packet;
use directed::Carrier;

/// All directions of all links. The place of a direction in the event queue is its index.
#[derive(Debug)]
pub(crate) struct Network {
    links: Vec<Directed>,
    media: Vec<Medium>,
    /// Fragments that were dropped and not yet reported.
    dropped_fragments: Vec<Dropped>,
    /// No packet is handed to a link after this time.
    end: Time,
}

/// A medium that several links share in one direction.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) medium: PolledMedium<Packet, Discipline<Packet>, LossProcess>,
    /// The numbers of the modems' links. The medium's events have the first of these numbers as
    /// their place.
    pub(crate) links: Vec<u32>,
}

/// The result of handing a packet to a link.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Handed {
    /// The packet has a future event.
    OnTheWay,
    /// It arrives at the end of its route at this time, without an event.
    Arrives(Time),
    Dropped(Dropped),
}

/// A packet that was dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropped {
    pub(crate) at: Time,
    pub(crate) link: u32,
    pub(crate) packet: Packet,
    pub(crate) reason: DropReason,
}

impl Network {
    /// A network of these links. Links that can be joined are joined, unless `join` is false.
    ///
    /// `feeders` has, for each direction, the one direction from which it gets its packets; `None`
    /// if it gets them from several, or from a host or a proxy.
    pub(crate) fn new(
        mut links: Vec<Directed>,
        media: Vec<Medium>,
        feeders: &[Option<u32>],
        end: Time,
        join: bool,
    ) -> Self {
        for (index, feeder) in feeders.iter().enumerate() {
            let before = feeder.and_then(|feeder| links.get(feeder as usize));
            let joined = join
                && before.is_some_and(Directed::is_fixed)
                && links.get(index).is_some_and(Directed::is_fixed);
            if let Some(link) = links.get_mut(index) {
                link.joined = joined;
            }
        }
        Self {
            links,
            media,
            dropped_fragments: Vec::new(),
            end,
        }
    }

    /// Hands a packet to the next link of its route, and to those joined to it.
    ///
    /// A packet that reaches the end of its route before `events_from`, without another before it
    /// on the last link, has no event: the caller that passes such a time must handle its arrival.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        schedule: &mut Schedule,
        now: Time,
        route: &[u32],
        packet: &mut Packet,
        events_from: Time,
    ) -> Handed {
        let mut at = now;
        // A separate variable: if it were written into the packet and read again together with its
        // neighbours, the processor would stall.
        let mut passage = packet.passage;
        loop {
            let place = route[passage.hop()];
            let link = &mut self.links[place as usize];
            let verdict = match &mut link.carrier {
                Carrier::Own(Body::Fixed(fixed)) if packet.size <= link.entrance.passes() => {
                    fixed.handle(at, packet)
                }
                _ => {
                    packet.passage = passage;
                    match self.handle_specially(schedule, at, route, packet) {
                        Some(verdict) => verdict,
                        None => return Handed::OnTheWay,
                    }
                }
            };
            match verdict {
                Verdict::Delivered { due } => {
                    let next = route.get(passage.hop() + 1);
                    if due <= self.end && next.is_some_and(|next| self.links[*next as usize].joined)
                    {
                        passage.advance();
                        at = due;
                        continue;
                    }
                    let link = &mut self.links[place as usize];
                    if link.on_the_way.is_empty() {
                        if due < events_from && next.is_none() {
                            return Handed::Arrives(due);
                        }
                        schedule.wake(place, due);
                    }
                    let on_its_way = Packet { passage, ..*packet };
                    link.on_the_way.push_back((due, on_its_way));
                    packet.passage = passage;
                    return Handed::OnTheWay;
                }
                Verdict::Dropped { due, reason } => {
                    packet.passage = passage;
                    return Handed::Dropped(Dropped {
                        at: due,
                        link: place,
                        packet: *packet,
                        reason,
                    });
                }
            }
        }
    }

    /// Hands a packet to a link that is not fixed, or whose MTU is smaller. Returns the verdict if
    /// it is known now.
    #[inline(never)]
    fn handle_specially(
        &mut self,
        schedule: &mut Schedule,
        at: Time,
        route: &[u32],
        packet: &Packet,
    ) -> Option<Verdict> {
        let place = route[packet.passage.hop()];
        let link = &mut self.links[place as usize];
        match link.entrance.enter(*packet) {
            Entering::Whole(_) => {}
            Entering::Fragments(fragments) => {
                self.handle_fragments(schedule, at, route, fragments);
                return None;
            }
            Entering::Refused(_) => {
                let reason = DropReason::Refused;
                return Some(Verdict::Dropped { due: at, reason });
            }
        }
        match &mut link.carrier {
            Carrier::Own(body) => {
                let Some(stage) = body.stage_mut() else {
                    return body.decide(at, packet);
                };
                stage.handle(at, *packet);
                // If a packet is ready already, an event at this very time polls it.
                let ready = stage.poll_timeout().unwrap_or(at);
                schedule.wake(place, ready.max(at));
                None
            }
            Carrier::Shared { medium, station } => {
                let (medium, station) = (*medium, *station);
                self.share(schedule, at, medium, station, *packet);
                None
            }
        }
    }

    /// Hands a packet to a modem.
    #[cold]
    fn share(
        &mut self,
        schedule: &mut Schedule,
        now: Time,
        medium: usize,
        station: usize,
        packet: Packet,
    ) {
        let Some(Medium { medium, links }) = self.media.get_mut(medium) else {
            return;
        };
        medium.handle(now, station, packet);
        if let (Some(place), Some(at)) = (links.first(), medium.poll_timeout()) {
            schedule.wake(*place, at.max(now));
        }
    }

    /// The shared medium that a place's link belongs to.
    fn medium_of(&self, place: u32) -> Option<&Medium> {
        match self.links.get(place as usize)?.carrier {
            Carrier::Shared { medium, .. } => self.media.get(medium),
            _ => None,
        }
    }

    /// The counters of the media, in their order.
    pub(crate) fn media(&self) -> impl Iterator<Item = PolledCounters> {
        self.media.iter().map(|medium| *medium.medium.counters())
    }

    /// Hands a packet over in these fragments.
    #[cold]
    fn handle_fragments(
        &mut self,
        schedule: &mut Schedule,
        at: Time,
        route: &[u32],
        fragments: Vec<Packet>,
    ) {
        for mut fragment in fragments {
            let handed = self.handle(schedule, at, route, &mut fragment, Time::ZERO);
            if let Handed::Dropped(dropped) = handed {
                self.dropped_fragments.push(dropped);
            }
        }
    }

    /// The fragments that were dropped since the last call.
    pub(crate) fn take_dropped_fragments(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped_fragments)
    }

    pub(crate) const fn has_dropped_fragments(&self) -> bool {
        !self.dropped_fragments.is_empty()
    }

    /// Packets in transit on a link whose delivery times are known when they are handed over;
    /// `None` for other links, which are [polled](Self::poll).
    #[inline]
    pub(crate) fn on_its_way(&mut self, place: u32) -> Option<&mut VecDeque<(Time, Packet)>> {
        let link = &mut self.links[place as usize];
        match link.carrier {
            Carrier::Own(Body::Fixed(_) | Body::Compressed(_)) => Some(&mut link.on_the_way),
            Carrier::Own(Body::Staged(_)) | Carrier::Shared { .. } => None,
        }
    }

    /// The next packet that has come out of a link by `now`, and that link: on a shared medium, it
    /// may be a link other than that of `place`.
    pub(crate) fn poll(&mut self, place: u32, now: Time) -> Option<(u32, Output<Packet>)> {
        match &mut self.links[place as usize].carrier {
            Carrier::Own(body) => Some((place, body.stage_mut()?.poll(now)?)),
            Carrier::Shared { medium, .. } => {
                let medium = self.media.get_mut(*medium)?;
                let (station, output) = medium.medium.poll(now)?;
                Some((*medium.links.get(station)?, output))
            }
        }
    }

    /// When the next packet may come out of a link that is [polled](Self::poll).
    pub(crate) fn poll_timeout(&self, place: u32) -> Option<Time> {
        match &self.links[place as usize].carrier {
            Carrier::Own(body) => body.stage()?.poll_timeout(),
            Carrier::Shared { medium, .. } => self.media.get(*medium)?.medium.poll_timeout(),
        }
    }

    /// The packets that wait, as of the last packet that was handed over.
    pub(crate) fn waiting(&self, place: u32) -> Waiting {
        match &self.links[place as usize].carrier {
            Carrier::Own(body) => body.waiting(),
            Carrier::Shared { station, .. } => {
                let medium = self.medium_of(place);
                let modem = medium.and_then(|medium| medium.medium.station(*station));
                modem.map_or_else(Waiting::default, |modem| Waiting {
                    packets: modem.queue().packets(),
                    bytes: modem.queue().bytes(),
                })
            }
        }
    }

    /// Whether the fate of a packet on a link is known when it is handed over.
    pub(crate) fn is_fixed(&self, place: u32) -> bool {
        let link = self.links.get(place as usize);
        link.is_some_and(Directed::is_fixed)
    }

    /// Whether a link is fixed, and every packet takes some time on it.
    pub(crate) fn is_fixed_and_takes_time(&self, place: u32) -> bool {
        match self.links.get(place as usize).map(|link| &link.carrier) {
            Some(Carrier::Own(Body::Fixed(fixed))) => fixed.takes_time(),
            _ => false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn counters(&self, place: usize) -> Option<Counters> {
        let link = self.links.get(place)?;
        let counters = match link.carrier {
            Carrier::Own(ref body) => body.counters(),
            Carrier::Shared { medium, station } => {
                *self.media.get(medium)?.medium.station(station)?.counters()
            }
        };
        Some(counters.with_refused(link.entrance.refused()))
    }

    /// Packets that were handed to a link and neither dropped nor polled.
    pub(crate) fn on_the_way(&self) -> u64 {
        let links: u64 = self.links.iter().map(Directed::on_the_way).sum();
        let media = self.media.iter().map(|medium| medium.medium.held() as u64);
        links + media.sum::<u64>()
    }
}
