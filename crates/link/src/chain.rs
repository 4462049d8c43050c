//! Two cells in a row, as one cell.

use std::marker::PhantomData;

use midspan_units::Time;

use crate::cell::{Cell, Output};

/// Hands each packet that `first` delivers to `second`, at the time at which it was due.
#[derive(Debug, Clone)]
pub struct Chain<P, A, B> {
    first: A,
    second: B,
    packet: PhantomData<P>,
}

impl<P, A: Cell<P>, B: Cell<P>> Chain<P, A, B> {
    /// `first`, then `second`.
    pub const fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            packet: PhantomData,
        }
    }

    /// The cell that packets reach first.
    pub const fn first(&self) -> &A {
        &self.first
    }

    /// The cell that packets reach last.
    pub const fn second(&self) -> &B {
        &self.second
    }
}

impl<P, A: Cell<P>, B: Cell<P>> Cell<P> for Chain<P, A, B> {
    fn handle(&mut self, now: Time, packet: P) {
        // The second cell catches up at the next poll: it gets due times, not `now`.
        self.first.handle(now, packet);
    }

    fn poll(&mut self, now: Time) -> Option<Output<P>> {
        while let Some(output) = self.first.poll(now) {
            match output {
                Output::Delivered { due, packet } => self.second.handle(due, packet),
                dropped @ Output::Dropped { .. } => return Some(dropped),
            }
        }
        self.second.poll(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timeouts = [self.first.poll_timeout(), self.second.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    fn held(&self) -> usize {
        self.first.held() + self.second.held()
    }
}
