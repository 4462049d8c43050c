//! How many connections a thread accepts in one turn; pure.

/// Most connections accepted from one socket in one turn, so that sessions are not delayed.
pub const ACCEPTS_PER_TURN: usize = 16;

/// If connections waited in this many consecutive turns, many are assumed to wait.
const ROUNDS: u8 = 4;

/// An estimate of how many connections wait on a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crowd {
    /// The last turn in which a connection waited.
    round: u64,
    /// Number of consecutive turns in which a connection waited, the last one included.
    streak: u8,
}

impl Crowd {
    /// A connection waits in this turn. Returns how many to accept at most.
    pub const fn next_turn(&mut self, round: u64) -> usize {
        self.streak = match round == self.round.wrapping_add(1) {
            true => self.streak.saturating_add(1),
            false => 1,
        };
        self.round = round;
        match self.streak > ROUNDS {
            true => ACCEPTS_PER_TURN,
            false => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_taken_only_where_one_waits_round_after_round() {
        let mut crowd = Crowd::default();
        let mut taken = |rounds: std::ops::Range<u64>| -> Vec<usize> {
            rounds.map(|round| crowd.next_turn(round)).collect()
        };
        assert_eq!(taken(10..15), [1, 1, 1, 1, ACCEPTS_PER_TURN]);
        assert_eq!(taken(15..16), [ACCEPTS_PER_TURN]);
        // One turn without a waiting connection.
        assert_eq!(taken(17..19), [1, 1]);
    }
}
