//! Whether the SACK blocks of an ACK say all that those of the one before it say.

/// Bytes that the blocks of an ACK name beyond those of the ACK before it with the same number;
/// `None` where they do not name all that those name, or nothing more, and where they say
/// something else: blocks that overlap or are empty, as that of a duplicate segment may be
/// (RFC 2883 §4).
///
/// A block is the offset of its first byte, and of the byte behind its last, from the number that
/// the ACK acknowledges. The queue discipline CAKE compares blocks in the same way before its ACK
/// filter lets one ACK stand for another.
#[must_use]
pub fn selection_growth(before: &[(u64, u64)], now: &[(u64, u64)]) -> Option<u64> {
    let is_sound = now.iter().enumerate().all(|(at, (start, end))| {
        let others = now.get(..at).unwrap_or_default();
        start < end && others.iter().all(|(from, to)| end <= from || to <= start)
    });
    let holds_all = before.iter().all(|(start, end)| {
        let mut blocks = now.iter();
        blocks.any(|(from, to)| from <= start && end <= to)
    });
    if !is_sound || !holds_all {
        return None;
    }
    let bytes = |blocks: &[(u64, u64)]| -> u64 {
        let lengths = blocks.iter().map(|(start, end)| end.saturating_sub(*start));
        lengths.fold(0, u64::saturating_add)
    };
    bytes(now)
        .checked_sub(bytes(before))
        .filter(|more| *more > 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_grows_and_what_does_not() {
        let grows = selection_growth;
        assert_eq!(grows(&[], &[(1, 2)]), Some(1));
        assert_eq!(grows(&[(1, 2)], &[(1, 4)]), Some(2));
        // Another gap: the newest block comes first.
        assert_eq!(grows(&[(1, 4)], &[(6, 7), (1, 4)]), Some(1));
        // A gap was filled.
        assert_eq!(grows(&[(6, 7), (1, 4)], &[(1, 7)]), Some(2));
        // The same; less; another; a fourth block that has no room.
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

    fn blocks() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..20, 0_u64..20), 0..4)
    }

    proptest! {
        /// Byte by byte: nothing that was named is missing, and the count is right.
        #[test]
        fn it_is_what_the_bytes_say(before in blocks(), now in blocks()) {
            let named = |blocks: &[(u64, u64)]| -> BTreeSet<u64> {
                blocks.iter().flat_map(|(start, end)| *start..*end).collect()
            };
            if let Some(more) = selection_growth(&before, &now) {
                let (before, now) = (named(&before), named(&now));
                prop_assert!(before.is_subset(&now));
                prop_assert!(more as usize <= now.len());
            }
        }
    }
}
