//! Links, and how a packet gets from one to the next.
//!
//! Where a link takes its packets from one other link only, and neither changes over time, what
//! becomes of a packet on the second is known as soon as it is known on the first: the two are
//! *joined*, and a packet passes them in one step, without an event between. The results are
//! the same as with one event for each link (a test compares them).

mod directed;
mod loss;

pub use loss::LossPattern;

pub(crate) use directed::{Directed, NewLink};

use midspan_link::{Cell, Counters, DropReason, Output, Verdict};
use midspan_units::Time;

use crate::engine::Schedule;
use crate::packet::Packet;
use directed::Kind;

/// All directions of all links. The place of a direction in the event queue is its index.
#[derive(Debug)]
pub(crate) struct Network {
    links: Vec<Directed>,
    /// No packet is handed to a link after this time.
    end: Time,
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
    /// The links, with those joined that may be, unless `join` is false.
    ///
    /// `feeders` says for each direction which direction it takes packets from, or `None` where
    /// it takes them from several, or from a host or a proxy.
    pub(crate) fn new(
        mut links: Vec<Directed>,
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
        Self { links, end }
    }

    /// Hands a packet to the link at `packet.hop` of its route, and to those joined to it.
    /// Returns what was dropped, if it was.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        schedule: &mut Schedule,
        now: Time,
        route: &[u32],
        mut packet: Packet,
    ) -> Option<Dropped> {
        let mut at = now;
        loop {
            let place = route[usize::from(packet.hop)];
            let link = &mut self.links[place as usize];
            let Kind::Fixed(fixed) = &mut link.kind else {
                return link.change(schedule, place, now, packet);
            };
            match fixed.handle(at, &packet) {
                Verdict::Delivered { due } => {
                    let next = route.get(usize::from(packet.hop) + 1);
                    if due <= self.end && next.is_some_and(|next| self.links[*next as usize].joined)
                    {
                        packet.hop += 1;
                        at = due;
                        continue;
                    }
                    let link = &mut self.links[place as usize];
                    if link.on_the_way.is_empty() {
                        schedule.wake(place, due);
                    }
                    link.on_the_way.push_back((due, packet));
                    return None;
                }
                Verdict::Dropped { due, reason } => {
                    return Some(Dropped {
                        at: due,
                        link: place,
                        packet,
                        reason,
                    });
                }
            }
        }
    }

    /// The next packet that has come out of a link by `now`.
    pub(crate) fn poll(&mut self, place: u32, now: Time) -> Option<Output<Packet>> {
        let link = &mut self.links[place as usize];
        match &mut link.kind {
            Kind::Fixed(_) => {
                let (due, packet) = link.on_the_way.pop_front_if(|(due, _)| *due <= now)?;
                Some(Output::Delivered { due, packet })
            }
            Kind::Changing(changing) => changing.poll(now),
        }
    }

    /// When the next packet comes out of a link.
    pub(crate) fn poll_timeout(&self, place: u32) -> Option<Time> {
        let link = &self.links[place as usize];
        match &link.kind {
            Kind::Fixed(_) => link.on_the_way.front().map(|(due, _)| *due),
            Kind::Changing(changing) => changing.poll_timeout(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn counters(&self, place: usize) -> Option<Counters> {
        self.links.get(place).map(Directed::counters)
    }

    /// Packets that were handed to a link, and have neither been dropped nor polled.
    pub(crate) fn on_the_way(&self) -> u64 {
        self.links.iter().map(Directed::on_the_way).sum()
    }
}
