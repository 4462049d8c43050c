//! The state machine against a model of its two sockets.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Bytes in the relay's buffer, and in its pipe.
const COPY_SIZE: usize = 8;
const PIPE_SIZE: usize = 32;

/// An event at the direction's sockets.
#[derive(Debug, Clone)]
enum Event {
    /// The sender writes this many bytes.
    Arrives(u8),
    /// The receiver makes room for this many bytes.
    Room(u8),
    /// The sender sends its FIN.
    Fin,
    /// The sender's connection is reset.
    Reset,
    /// The receiver's connection fails.
    ReceiverFails,
    /// The relay carries out this many actions.
    Turn(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (1..40_u8).prop_map(Event::Arrives),
        5 => (1..40_u8).prop_map(Event::Room),
        1 => Just(Event::Fin),
        1 => Just(Event::Reset),
        1 => Just(Event::ReceiverFails),
        8 => (1..6_u8).prop_map(Event::Turn),
    ]
}

/// Two kernel sockets with edge-triggered events, and the data that passed.
#[derive(Default)]
struct Sockets {
    arrived: VecDeque<u8>,
    sequence: u8,
    fin: bool,
    reset: bool,
    room: usize,
    receiver_failed: bool,
    held: VecDeque<u8>,
    delivered: Vec<u8>,
    finished: bool,
}

impl Sockets {
    fn event(&mut self, direction: &mut Direction, event: &Event) {
        match *event {
            Event::Arrives(count) if !self.fin && !self.reset => {
                for _ in 0..count {
                    self.sequence = self.sequence.wrapping_add(1);
                    self.arrived.push_back(self.sequence);
                }
                direction.handle_readable();
            }
            Event::Room(count) => {
                self.room += usize::from(count);
                direction.handle_writable();
            }
            Event::Fin if !self.reset => {
                self.fin = true;
                direction.handle_end_ahead();
            }
            Event::Reset if !self.reset => {
                self.reset = true;
                direction.handle_inbound_failed(self.fin);
            }
            Event::ReceiverFails => {
                self.receiver_failed = true;
                self.held.clear();
                direction.handle_outbound_failed();
            }
            Event::Turn(count) => {
                for _ in 0..count {
                    self.act(direction);
                }
            }
            _ => {}
        }
    }

    fn act(&mut self, direction: &mut Direction) {
        match direction.next() {
            Action::Read(method) => {
                assert!(self.held.is_empty(), "reads only when nothing is held");
                let most = match method {
                    Method::Copy => COPY_SIZE,
                    Method::Splice => PIPE_SIZE,
                };
                let count = most.min(self.arrived.len());
                self.held.extend(self.arrived.drain(..count));
                let reading = match count {
                    0 if self.fin || self.reset => Reading::End,
                    0 => Reading::Blocked,
                    count => Reading::Bytes {
                        count: u32::try_from(count).unwrap(),
                        full: count == most,
                    },
                };
                direction.handle_read(method, reading);
            }
            Action::Write => {
                let count = self.room.min(self.held.len());
                let full = count < self.held.len();
                self.room -= count;
                self.delivered.extend(self.held.drain(..count));
                direction.handle_written(u32::try_from(count).unwrap(), full);
            }
            Action::Finish => {
                self.finished = true;
                direction.handle_finished();
            }
            Action::WaitReadable | Action::WaitWritable | Action::Nothing => {}
        }
    }

    fn check(&self, direction: &Direction) {
        assert_eq!(direction.held() as usize, self.held.len());
        assert!(self.held.len() <= PIPE_SIZE, "what is held is bounded");
        let expected = (1..=self.delivered.len()).map(|n| u8::try_from(n % 256).unwrap());
        assert!(
            self.delivered.iter().copied().eq(expected),
            "nothing lost, added or out of order"
        );
        if self.finished {
            assert!(self.fin, "an end is passed on only if one came");
            assert!(self.arrived.is_empty() && self.held.is_empty());
        }
    }
}

proptest! {
    #[test]
    fn bytes_keep_their_order_and_the_end_comes_last(
        events in proptest::collection::vec(event(), 0..200),
    ) {
        let mut direction = Direction::new();
        let mut sockets = Sockets::default();
        for event in &events {
            sockets.event(&mut direction, event);
            sockets.check(&direction);
        }
    }

    /// Liveness: with enough room and enough turns, all data that arrived is delivered, and the end
    /// exactly if there was one.
    #[test]
    fn nothing_waits_for_ever(events in proptest::collection::vec(event(), 0..200)) {
        let mut direction = Direction::new();
        let mut sockets = Sockets::default();
        for event in &events {
            sockets.event(&mut direction, event);
        }
        for _ in 0..8_000 {
            sockets.event(&mut direction, &Event::Room(255));
            sockets.event(&mut direction, &Event::Turn(4));
        }
        sockets.check(&direction);
        if sockets.receiver_failed {
            prop_assert!(direction.is_done());
            return Ok(());
        }
        prop_assert!(sockets.arrived.is_empty(), "{} bytes wait", sockets.arrived.len());
        prop_assert_eq!(direction.held(), 0);
        prop_assert_eq!(sockets.finished, sockets.fin);
        prop_assert_eq!(direction.is_finished(), sockets.fin);
        prop_assert_eq!(direction.is_done(), sockets.fin || sockets.reset);
    }
}

fn bytes(count: u32, full: bool) -> Reading {
    Reading::Bytes { count, full }
}

fn ready() -> Direction {
    let mut direction = Direction::new();
    direction.handle_readable();
    direction.handle_writable();
    direction
}

#[test]
fn a_full_read_begins_bulk_and_two_small_splices_end_it() {
    let mut direction = ready();
    assert_eq!(direction.next(), Action::Read(Method::Copy));
    direction.handle_read(Method::Copy, bytes(32_768, true));
    direction.handle_written(32_768, false);
    assert_eq!(direction.next(), Action::Read(Method::Splice));
    direction.handle_read(Method::Splice, bytes(BULK_AT_LEAST, false));
    direction.handle_written(BULK_AT_LEAST, false);
    for count in [100, BULK_AT_LEAST, 100, 100] {
        assert_eq!(direction.next(), Action::Read(Method::Splice));
        direction.handle_read(Method::Splice, bytes(count, false));
        direction.handle_written(count, false);
    }
    assert_eq!(direction.next(), Action::Read(Method::Copy));
}

#[test]
fn a_turn_is_long_while_reads_are_large() {
    let mut direction = ready();
    assert_eq!(direction.actions_per_turn(), 32);
    for (count, actions) in [(LARGE_READ, 16), (LARGE_READ - 1, 2), (LARGE_READ, 16)] {
        direction.handle_read(Method::Splice, bytes(count, false));
        direction.handle_written(count, false);
        assert_eq!(direction.actions_per_turn(), actions);
    }
}

#[test]
fn a_short_read_is_the_last_unless_an_end_is_ahead() {
    let mut direction = ready();
    direction.handle_read(Method::Copy, bytes(1, false));
    direction.handle_written(1, false);
    assert_eq!(direction.next(), Action::WaitReadable);
    direction.handle_end_ahead();
    direction.handle_read(Method::Copy, bytes(1, false));
    direction.handle_written(1, false);
    assert_eq!(direction.next(), Action::Read(Method::Copy));
}

#[test]
fn urgent_data_is_never_spliced() {
    let mut direction = ready();
    direction.handle_urgent();
    direction.handle_read(Method::Copy, bytes(32_768, true));
    direction.handle_written(32_768, false);
    assert_eq!(direction.next(), Action::Read(Method::Copy));
}

#[test]
fn an_end_after_a_reset_is_none_but_an_end_before_it_is() {
    for after_end in [false, true] {
        let mut direction = ready();
        direction.handle_inbound_failed(after_end);
        direction.handle_read(Method::Copy, Reading::End);
        assert_eq!(direction.next() == Action::Finish, after_end);
    }
}

#[test]
fn nothing_is_read_while_the_outbound_leg_has_no_room() {
    let mut direction = ready();
    direction.handle_read(Method::Copy, bytes(100, false));
    direction.handle_written(60, true);
    direction.handle_readable();
    assert_eq!(direction.next(), Action::WaitWritable);
    direction.handle_writable();
    assert_eq!(direction.next(), Action::Write);
}

/// At an urgent byte directly before an end, splice returns 0, as it does at the end.
#[test]
fn an_end_that_a_splice_has_seen_is_read_again_by_a_copy() {
    let mut direction = Direction::new();
    direction.handle_readable();
    direction.handle_writable();
    let count = BULK_AT_LEAST;
    direction.handle_read(Method::Copy, Reading::Bytes { count, full: true });
    direction.handle_written(count, false);
    assert_eq!(direction.next(), Action::Read(Method::Splice));
    direction.handle_splice_exhausted();
    assert_eq!(direction.next(), Action::Read(Method::Copy));
    direction.handle_read(
        Method::Copy,
        Reading::Bytes {
            count: 1,
            full: false,
        },
    );
    direction.handle_written(1, false);
    assert_eq!(direction.next(), Action::Read(Method::Copy));
    direction.handle_read(Method::Copy, Reading::End);
    assert_eq!(direction.next(), Action::Finish);
}
