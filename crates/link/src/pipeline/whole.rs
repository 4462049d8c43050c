//! One direction of a link as one stage.

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
///
/// Such a link returns each drop when it is due, in order of time with the deliveries.
#[derive(Debug)]
pub struct Pipeline<P> {
    parts: Parts<P>,
    /// Packets whose fate is decided already, by the place at which they leave the link. Those of one place are in
    /// order of time.
    decided: [Outputs<P>; 3],
}

/// The places at which a packet leaves the link: it does not enter, it is lost after its transmission, or it reaches
/// the far end.
const ENTRANCE: usize = 0;
const MIDDLE: usize = 1;
const FAR_END: usize = 2;

impl<P: Packet + Send + 'static> Pipeline<P> {
    /// One direction of a link, as [`build`] makes it.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn new(configuration: &Configuration, streams: Streams<'_>) -> Result<Self, LinkError> {
        Ok(Self {
            parts: build(configuration, streams)?,
            decided: Default::default(),
        })
    }
}

impl<P: Packet> Pipeline<P> {
    fn pass_entrance(&mut self, now: Time, packet: P) {
        match self.parts.body.decide(now, &packet) {
            Some(Verdict::Delivered { due }) => {
                self.decided[FAR_END].push(Output::Delivered { due, packet });
            }
            Some(Verdict::Dropped { due, reason }) => {
                let place = match reason {
                    DropReason::Lost => MIDDLE,
                    DropReason::Damaged => FAR_END,
                    _ => ENTRANCE,
                };
                self.decided[place].push_dropped(due, packet, reason);
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
                self.decided[ENTRANCE].push_dropped(now, packet, DropReason::Refused);
            }
        }
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        if let Some(stage) = self.parts.body.stage_mut() {
            return self.decided[ENTRANCE].pop().or_else(|| stage.poll(now));
        }
        let places = self.decided.iter_mut();
        let due = places.filter(|of| of.due().is_some_and(|due| due <= now));
        due.min_by_key(|of| of.due())?.pop()
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.parts.body.stage() {
            Some(stage) => stage.poll_timeout(),
            None => self.decided.iter().filter_map(Outputs::due).min(),
        }
    }

    fn held(&self) -> usize {
        let staged = self.parts.body.stage().map_or(0, Stage::held);
        staged + self.decided.iter().map(Outputs::len).sum::<usize>()
    }

    fn waiting(&self) -> Waiting {
        self.parts.body.waiting()
    }

    fn counters(&self) -> Counters {
        self.parts.counters()
    }
}
