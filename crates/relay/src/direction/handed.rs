//! A direction that another relay continues.

use midspan_handover::{DirectionState, InboundState, OutboundState};

use super::{Bulk, Direction, Inbound, Outbound};

impl Direction {
    /// The state without the held bytes. Whether the legs are readable or writable is left out, because the epoll
    /// of the other relay reports it again.
    pub const fn hand_over(&self) -> DirectionState {
        DirectionState {
            inbound: match self.inbound {
                Inbound::Open => InboundState::Open,
                Inbound::Ended => InboundState::Ended,
                Inbound::Broken => InboundState::Broken,
            },
            outbound: match self.outbound {
                Outbound::Open => OutboundState::Open,
                Outbound::Finished => OutboundState::Finished,
                Outbound::Broken => OutboundState::Broken,
            },
            bulk: self.is_bulk(),
            thorough: self.thorough,
            urgent: self.urgent,
            no_end: self.no_end,
        }
    }

    /// Continues a direction that holds this many bytes.
    pub const fn take_over(state: DirectionState, held: u32) -> Self {
        Self {
            held,
            inbound: match state.inbound {
                InboundState::Open => Inbound::Open,
                InboundState::Ended => Inbound::Ended,
                InboundState::Broken => Inbound::Broken,
            },
            outbound: match state.outbound {
                OutboundState::Open => Outbound::Open,
                OutboundState::Finished => Outbound::Finished,
                OutboundState::Broken => Outbound::Broken,
            },
            readable: false,
            writable: false,
            bulk: match state.bulk {
                true => Bulk::Yes,
                false => Bulk::No,
            },
            thorough: state.thorough,
            urgent: state.urgent,
            no_end: state.no_end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direction::{Action, Method, Reading};

    /// A direction that both relays have, and what the second one does once epoll has reported its legs.
    fn continued(direction: &Direction) -> Direction {
        let mut other = Direction::take_over(direction.hand_over(), direction.held());
        assert!(!matches!(other.next(), Action::Read(_) | Action::Write));
        other.handle_readable();
        other.handle_writable();
        other
    }

    fn ready() -> Direction {
        let mut direction = Direction::new();
        direction.handle_readable();
        direction.handle_writable();
        direction
    }

    #[test]
    fn held_bytes_are_written_before_more_is_read() {
        let mut direction = ready();
        let (count, full) = (20_000, true);
        direction.handle_read(Method::Copy, Reading::Bytes { count, full });
        direction.handle_written(5_000, true);
        let mut other = continued(&direction);
        assert_eq!((other.next(), other.held()), (Action::Write, 15_000));
        other.handle_written(15_000, false);
        // Reads have returned many bytes.
        assert_eq!(other.next(), Action::Read(Method::Splice));
    }

    #[test]
    fn an_end_that_was_read_is_passed_on_once() {
        let mut direction = ready();
        direction.handle_read(Method::Copy, Reading::End);
        let mut other = continued(&direction);
        assert_eq!(other.next(), Action::Finish);
        other.handle_finished();
        assert_eq!(continued(&other).next(), Action::Nothing);
    }

    #[test]
    fn an_end_behind_a_failure_stays_no_end() {
        let mut direction = ready();
        direction.handle_inbound_failed(false);
        let mut other = continued(&direction);
        assert!(other.is_end_ahead());
        assert_eq!(other.next(), Action::Read(Method::Copy));
        other.handle_read(Method::Copy, Reading::End);
        assert!(other.has_ended() && !other.has_ended_in_order());
        assert_eq!(continued(&other).next(), Action::Nothing);
        let mut direction = ready();
        direction.handle_outbound_failed();
        assert_eq!(continued(&direction).next(), Action::Nothing);
    }

    #[test]
    fn after_urgent_data_nothing_is_spliced() {
        let mut direction = ready();
        direction.handle_urgent();
        let (count, full) = (20_000, false);
        direction.handle_read(Method::Copy, Reading::Bytes { count, full });
        direction.handle_written(20_000, false);
        assert_eq!(continued(&direction).next(), Action::Read(Method::Copy));
    }
}
