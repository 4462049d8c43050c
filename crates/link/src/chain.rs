//! Two stages in a row, as one stage.

use std::marker::PhantomData;

use midspan_units::Time;

use crate::counters::Counters;
use crate::packet::Packet;
use crate::stage::{Output, Stage, Waiting};

/// Hands each packet that `first` delivers to `second`, at the time at which it was due.
///
/// Only the drops of one of the two stages come in order of time. The counters are those of the
/// first stage, with the deliveries and the drops of the second one.
#[derive(Debug, Clone)]
pub struct Chain<P, A, B> {
    first: A,
    second: B,
    /// Packets that the second stage has delivered or dropped.
    after: Counters,
    packet: PhantomData<fn(P)>,
}

impl<P, A: Stage<P>, B: Stage<P>> Chain<P, A, B> {
    /// `first`, then `second`.
    pub fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            after: Counters::default(),
            packet: PhantomData,
        }
    }

    /// The stage that packets reach first.
    pub const fn first(&self) -> &A {
        &self.first
    }

    /// The stage that packets reach last.
    pub const fn second(&self) -> &B {
        &self.second
    }
}

impl<P: Packet, A: Stage<P>, B: Stage<P>> Stage<P> for Chain<P, A, B> {
    fn handle(&mut self, now: Time, packet: P) {
        // The second stage catches up at the next poll: it gets due times, not `now`.
        self.first.handle(now, packet);
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        while let Some(output) = self.first.poll(now) {
            match output {
                Output::Delivered { due, packet } => self.second.handle(due, packet),
                dropped @ Output::Dropped { .. } => return Some(dropped),
            }
        }
        let output = self.second.poll(now)?;
        output.count(&mut self.after);
        Some(output)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timeouts = [self.first.poll_timeout(), self.second.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    fn held(&self) -> usize {
        self.first.held() + self.second.held()
    }

    fn waiting(&self) -> Waiting {
        self.first.waiting()
    }

    fn counters(&self) -> Counters {
        self.first.counters().followed_by(&self.after)
    }
}
