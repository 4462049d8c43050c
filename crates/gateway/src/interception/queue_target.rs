//! The target NFQUEUE of xtables, in nftables tables of Midspan.
//!
//! A kernel without the statement `queue` of nftables may still have the target, which
//! `iptables-nft` uses through the expression `target` of nf_tables (the kernel's nft_compat).
//! `nft` cannot write that expression. Therefore Midspan makes the tables here, and touches no
//! table of the host. There is one table for each family, because xtables has no table for both.

use std::io;

use super::own_tables;
use super::plan::{InterceptionNumbers, Marks};
use midspan_linux::nf_tables::{
    Comparison, FAMILIES, compare, delete_table, hook, load_meta, mask, meta, new_chain, new_rule,
    new_table, queue_by_target, transaction,
};

/// Name of the tables.
pub fn table(numbers: &InterceptionNumbers) -> String {
    format!("{}_queue", numbers.table)
}

/// Makes the tables, and replaces old ones.
pub fn install(numbers: &InterceptionNumbers, marks: &Marks) -> io::Result<()> {
    let table = table(numbers);
    transaction(|request| {
        for family in FAMILIES {
            delete_table(request, family, &table, own_tables::OURS);
            new_table(request, family, &table, own_tables::OURS);
            let priority = numbers.forward_priority.saturating_add(1);
            new_chain(request, family, &table, hook::FORWARD, priority);
            for mark in &marks.listeners {
                new_rule(request, family, &table, |rule| {
                    load_meta(rule, meta::MARK);
                    mask(rule, marks.mask);
                    compare(rule, Comparison::Equal, &mark.to_ne_bytes());
                    queue_by_target(rule, numbers.queue);
                });
            }
        }
    })
}

/// Removes the tables, if there are any.
pub fn remove(table: &str) -> io::Result<()> {
    transaction(|request| {
        for family in FAMILIES {
            delete_table(request, family, table, own_tables::OURS);
        }
    })
}
