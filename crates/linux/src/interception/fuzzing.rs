//! See [`crate::fuzzing`].

use super::{own_tables, survey};

/// What `nft list ruleset` prints.
pub fn nft_text(text: &str) {
    for table in own_tables::tables(text) {
        let named = format!("table {} {}", table.family, table.name);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&named), "{named}");
    }
}

/// `/proc/net/netfilter/nfnetlink_queue`.
pub fn queue_table(text: &str) {
    for queue in [0, 7700, u16::MAX] {
        if survey::holder(queue, text).is_some() {
            assert!(text.contains(&queue.to_string()));
        }
    }
}
