//! How many connections are accepted at once: pure.

/// Most connections accepted at once from one socket, so that sessions have their turn.
pub const ACCEPTS_PER_TURN: usize = 16;

/// So many rounds in a row in which a connection waited show that many do.
const ROUNDS: u8 = 4;

/// What is known of how many connections wait on a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crowd {
    /// The last round in which one waited.
    round: u64,
    /// How many rounds in a row one did, that one included.
    streak: u8,
}

impl Crowd {
    /// One waits in this round: how many are to be taken at most.
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
        // A round without.
        assert_eq!(taken(17..19), [1, 1]);
    }
}
