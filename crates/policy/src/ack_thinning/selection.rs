//! Whether the SACK blocks of an ACK contain all those of the previous ACK.

/// The bytes that the SACK blocks of an ACK (`now`) cover in addition to those of the previous ACK
/// (`before`), which has the same acknowledgement number. `None` if a block of the previous ACK is not within
/// one block of the new ACK, or if the new blocks cover nothing more. Also `None` if the new blocks overlap
/// or are empty, because such blocks carry other information, for example about a duplicate segment
/// (RFC 2883 §4).
///
/// A block consists of two offsets from the number that the ACK acknowledges: that of its first
/// byte, and that of the byte after its last. The queue discipline CAKE compares blocks in the same
/// way before its ACK filter replaces one ACK with another.
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

    fn blocks() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..20, 0_u64..20), 0..4)
    }

    proptest! {
        /// Byte by byte: no byte that was covered is missing, and the count is right.
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
