//! One direction of a link as one stage.

use std::collections::VecDeque;

use midspan_units::Time;

use super::{Configuration, LinkError, Parts, build};
use crate::counters::Counters;
use crate::drop_reason::DropReason;
use crate::fixed::Verdict;
use crate::fragments::Entering;
use crate::packet::Packet;
use crate::seed::Streams;
use crate::stage::{Output, Outputs, Stage, Waiting};

/// One direction of a link as one stage: for a caller that keeps no packets itself.
///
/// A poll of a link that never changes does not advance its time: a packet that arrived before the
/// poll, and is handed over after it, counts as arrived when it did.
#[derive(Debug)]
pub struct Pipeline<P> {
    parts: Parts<P>,
    /// Packets that will be delivered, in order of time, if their fate is decided already.
    on_the_way: VecDeque<(Time, P)>,
    /// Packets that were dropped when they arrived.
    dropped: Outputs<P>,
}

impl<P: Packet + Send + 'static> Pipeline<P> {
    /// One direction of a link, as [`build`] makes it.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn new(configuration: &Configuration, streams: Streams<'_>) -> Result<Self, LinkError> {
        Ok(Self {
            parts: build(configuration, streams)?,
            on_the_way: VecDeque::new(),
            dropped: Outputs::default(),
        })
    }
}

impl<P: Packet> Pipeline<P> {
    fn pass_entrance(&mut self, now: Time, packet: P) {
        match self.parts.body.decide(now, &packet) {
            Some(Verdict::Delivered { due }) => self.on_the_way.push_back((due, packet)),
            Some(Verdict::Dropped { due, reason }) => {
                self.dropped.push_dropped(due, packet, reason)
            }
            None => {
                if let Some(stage) = self.parts.body.stage_mut() {
                    stage.handle(now, packet);
                }
            }
        }
    }
}

impl<P: Packet> Stage<P> for Pipeline<P> {
    fn handle(&mut self, now: Time, packet: P) {
        if packet.size() <= self.parts.entrance.passes() {
            return self.pass_entrance(now, packet);
        }
        match self.parts.entrance.enter(packet) {
            Entering::Whole(packet) => self.pass_entrance(now, packet),
            Entering::Fragments(pieces) => {
                for piece in pieces {
                    self.pass_entrance(now, piece);
                }
            }
            Entering::Refused(packet) => {
                self.dropped.push_dropped(now, packet, DropReason::Refused);
            }
        }
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        if let Some(dropped) = self.dropped.pop() {
            return Some(dropped);
        }
        if let Some(stage) = self.parts.body.stage_mut() {
            return stage.poll(now);
        }
        let (due, packet) = self.on_the_way.pop_front_if(|(due, _)| *due <= now)?;
        Some(Output::Delivered { due, packet })
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.parts.body.stage() {
            Some(stage) => stage.poll_timeout(),
            None => self.on_the_way.front().map(|(due, _)| *due),
        }
    }

    fn held(&self) -> usize {
        let staged = self.parts.body.stage().map_or(0, Stage::held);
        staged + self.on_the_way.len() + self.dropped.len()
    }

    fn waiting(&self) -> Waiting {
        self.parts.body.waiting()
    }

    fn counters(&self) -> Counters {
        self.parts.counters()
    }
}
