//! A transfer that another relay continues, with the bytes that it holds.

use std::os::fd::OwnedFd;

use midspan_handover::{HeldState, TransferState};

use super::{Held, Transfer, small};
use crate::direction::Direction;
use crate::pipes::{Pipe, Pipes};
use crate::throttle::Throttle;

/// The bytes that a transfer holds.
#[derive(Debug)]
pub enum HeldData<'a> {
    /// None.
    Nothing,
    /// Bytes in memory.
    Copied(&'a [u8]),
    /// Bytes in a pipe.
    Piped(&'a Pipe),
}

/// The bytes that a transfer of another relay has held.
#[derive(Debug)]
pub enum TakenData {
    /// None.
    Nothing,
    /// Bytes that were in memory.
    Copied(Box<[u8]>),
    /// The read end and the write end of a pipe.
    Piped([OwnedFd; 2]),
}

impl Transfer {
    /// The state, and the bytes that it holds.
    pub fn hand_over(&self) -> (TransferState, HeldData<'_>) {
        let (held, data) = match &self.held {
            _ if self.direction.held() == 0 => (HeldState::Nothing, HeldData::Nothing),
            Held::Nothing => (HeldState::Nothing, HeldData::Nothing),
            Held::Buffer(buffer) => {
                let rest = buffer.rest();
                (HeldState::Copied(small(rest.len())), HeldData::Copied(rest))
            }
            Held::Pipe(pipe) => (
                HeldState::Piped(self.direction.held()),
                HeldData::Piped(pipe),
            ),
        };
        let throttle = self.throttle.as_deref().map(Throttle::hand_over);
        let state = TransferState {
            direction: self.direction.hand_over(),
            held,
            is_bounded: self.is_bounded,
            is_kept_alive: self.is_kept_alive,
            has_spliced: self.hides_failure,
            throttle: throttle.unwrap_or_default(),
        };
        (state, data)
    }

    /// Continues a transfer with this state, which holds these bytes.
    pub fn take_over(state: &TransferState, data: TakenData, pipes: &mut Pipes) -> Self {
        let (count, held) = match data {
            TakenData::Nothing => (0, Held::Nothing),
            TakenData::Copied(bytes) => (small(bytes.len()), Held::buffer(bytes)),
            TakenData::Piped(ends) => (state.held.bytes(), Held::Pipe(pipes.take_over(ends))),
        };
        Self {
            direction: Direction::take_over(state.direction, count),
            is_bounded: state.is_bounded,
            // Until its buffers are measured.
            pieces: 1,
            is_kept_alive: state.is_kept_alive,
            hides_failure: state.has_spliced,
            held,
            throttle: Throttle::take_over(&state.throttle, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direction::{Method, Reading};
    use midspan_units::Time;

    #[test]
    fn bytes_in_memory_are_those_that_were_not_written() {
        let mut pipes = Pipes::new(0, 0);
        let mut transfer = Transfer::new();
        assert!(matches!(transfer.hand_over().1, HeldData::Nothing));
        transfer.hold(b"written and held".to_vec());
        transfer.direction.handle_written(12, true);
        if let Held::Buffer(buffer) = &mut transfer.held {
            buffer.start = 12;
        }
        let (state, data) = transfer.hand_over();
        let HeldData::Copied(b"held") = data else {
            panic!("{data:?}");
        };
        let taken = TakenData::Copied((*b"held").into());
        let other = Transfer::take_over(&state, taken, &mut pipes);
        assert_eq!(other.direction.held(), 4);
        assert_eq!(other.hand_over().0, state);
    }

    #[test]
    fn bytes_in_a_pipe_stay_there_and_the_pipe_is_not_used_again() {
        let mut here = Pipes::new(1, 64 << 10);
        let pipe = here.take(Time::ZERO).unwrap();
        rustix::io::write(pipe.writer(), b"held").unwrap();
        let mut transfer = Transfer::new();
        let (count, full) = (4, false);
        (transfer.direction).handle_read(Method::Splice, Reading::Bytes { count, full });
        transfer.held = Held::Pipe(pipe);
        let (state, data) = transfer.hand_over();
        let HeldData::Piped(pipe) = data else {
            panic!("{data:?}");
        };
        let ends = [pipe.reader(), pipe.writer()].map(|end| end.try_clone_to_owned().unwrap());
        let mut there = Pipes::new(1, 64 << 10);
        let other = Transfer::take_over(&state, TakenData::Piped(ends), &mut there);
        assert_eq!((there.count(), there.in_use()), (1, 1));
        assert_eq!(other.hand_over().0, state);
        let Held::Pipe(pipe) = other.held else {
            panic!("{other:?}");
        };
        let mut bytes = [0; 4];
        rustix::io::read(pipe.reader(), &mut bytes).unwrap();
        assert_eq!(&bytes, b"held");
        there.give_back(pipe);
        assert_eq!((there.count(), there.in_use()), (0, 0));
    }
}
