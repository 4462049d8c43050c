//! The number of entries that one part of a divided memory may have.

/// The largest number of entries of one of `parts` parts, if a memory that is not divided may have
/// `most`. It is a quarter more than an even share, because entries do not fall evenly on the parts.
#[must_use]
pub const fn part_limit(most: usize, parts: usize) -> usize {
    if parts <= 1 {
        return most;
    }
    let share = most.div_ceil(parts);
    share + share / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_a_little_more_than_its_share() {
        assert_eq!([0, 1].map(|parts| part_limit(4096, parts)), [4096; 2]);
        assert_eq!(part_limit(4096, 64), 80);
        assert_eq!(part_limit(1, 64), 1);
    }
}
