//! Whether the SACK blocks of an ACK contain all those of the previous ACK that the sender needs.

/// The bytes that the SACK blocks of an ACK (`now`) cover in addition to those of the previous ACK
/// (`before`), which has the same acknowledgement number, and to those that ACKs have carried to the sender (`reported`).
/// `None` if a block of the previous ACK is within no block of the new ACK and within no reported one, or if the new
/// blocks cover nothing more. Also `None` if the new blocks overlap or are empty, because such blocks carry other
/// information, for example about a duplicate segment (RFC 2883 §4).
///
/// A block consists of two offsets from the number that the ACK acknowledges: that of its first
/// byte, and that of the byte after its last. The queue discipline CAKE compares blocks in the same
/// way before its ACK filter replaces one ACK with another; it remembers no reported ones.
#[must_use]
pub fn selection_growth(
    before: &[(u64, u64)],
    reported: &[(u64, u64)],
    now: &[(u64, u64)],
) -> Option<u64> {
    let is_sound = now.iter().enumerate().all(|(at, (start, end))| {
        let others = now.get(..at).unwrap_or_default();
        start < end && others.iter().all(|(from, to)| end <= from || to <= start)
    });
    let holds_all = before.iter().all(|(start, end)| {
        let mut blocks = now.iter().chain(reported);
        blocks.any(|(from, to)| from <= start && end <= to)
    });
    if !is_sound || !holds_all {
        return None;
    }
    let new = now.iter().map(|block| outside(*block, before, reported));
    Some(new.fold(0, u64::saturating_add)).filter(|more| *more > 0)
}

/// The bytes of a block that are in none of the other blocks.
fn outside((start, end): (u64, u64), before: &[(u64, u64)], reported: &[(u64, u64)]) -> u64 {
    let others = || before.iter().chain(reported);
    let (mut at, mut bytes) = (start, 0_u64);
    while at < end {
        let around = others().filter(|(from, to)| *from <= at && at < *to);
        if let Some(to) = around.map(|(_, to)| *to).max() {
            at = to;
            continue;
        }
        let next = others().filter(|(from, to)| *from > at && from < to);
        let next = next
            .map(|(from, _)| *from)
            .min()
            .map_or(end, |from| from.min(end));
        bytes = bytes.saturating_add(next - at);
        at = next;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_grows_and_what_does_not() {
        let grows = |before: &[(u64, u64)], now: &[(u64, u64)]| selection_growth(before, &[], now);
        assert_eq!(grows(&[], &[(1, 2)]), Some(1));
        assert_eq!(grows(&[(1, 2)], &[(1, 4)]), Some(2));
        // Another gap: the newest block comes first.
        assert_eq!(grows(&[(1, 4)], &[(6, 7), (1, 4)]), Some(1));
        // A gap was filled.
        assert_eq!(grows(&[(6, 7), (1, 4)], &[(1, 7)]), Some(2));
        // The same block; less; another one; a fourth block for which there is no room.
        assert_eq!(grows(&[(1, 4)], &[(1, 4)]), None);
        assert_eq!(grows(&[(1, 4)], &[(1, 3)]), None);
        assert_eq!(grows(&[(1, 4)], &[(5, 90)]), None);
        let full = [(5, 6), (3, 4), (1, 2)];
        assert_eq!(grows(&full, &[(7, 8), (5, 6), (3, 4)]), None);
        // A segment of a block came twice.
        assert_eq!(grows(&[(1, 4)], &[(2, 3), (1, 5)]), None);
        assert_eq!(grows(&[], &[(4, 4)]), None);
        assert_eq!(grows(&[], &[(4, 3)]), None);
    }

    #[test]
    fn what_has_reached_the_sender_need_not_be_repeated() {
        let full = [(5, 6), (3, 4), (1, 2)];
        let now = [(7, 8), (5, 6), (3, 4)];
        assert_eq!(selection_growth(&full, &[(1, 2)], &now), Some(1));
        // Only a part has reached the sender.
        let longer = [(5, 6), (3, 4), (0, 2)];
        assert_eq!(selection_growth(&longer, &[(1, 2)], &now), None);
        // The new block has reached it as well.
        assert_eq!(selection_growth(&full, &[(1, 2), (7, 8)], &now), None);
        assert_eq!(selection_growth(&[], &[(1, 3), (5, 7)], &[(0, 9)]), Some(5));
    }

    fn blocks() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..20, 0_u64..20), 0..4)
    }

    proptest! {
        /// Byte by byte: the sender misses no byte that was covered, and the count is right.
        #[test]
        fn it_is_what_the_bytes_say(before in blocks(), reported in blocks(), now in blocks()) {
            let named = |blocks: &[(u64, u64)]| -> BTreeSet<u64> {
                blocks.iter().flat_map(|(start, end)| *start..*end).collect()
            };
            if let Some(more) = selection_growth(&before, &reported, &now) {
                let (before, reported, now) = (named(&before), named(&reported), named(&now));
                prop_assert!(before.iter().all(|byte| now.contains(byte) || reported.contains(byte)));
                let new = now.iter().filter(|byte| !before.contains(byte) && !reported.contains(byte));
                prop_assert_eq!(new.count() as u64, more);
            }
        }
    }
}
