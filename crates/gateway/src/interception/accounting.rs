//! `net.netfilter.nf_conntrack_acct`: on while flows that pass untouched are measured.
//!
//! What it was stands in the comment of an empty nftables table, so that a later run can set it
//! back if this one is killed.

use std::fs;
use std::io;

use super::own_tables::{self, Parameter};
use super::rules;
use midspan_linux::nftables;

const FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_acct";
/// What the name of the table ends with.
pub(crate) const SUFFIX: &str = "_accounting";

/// Connection tracking counts bytes; as before when this value goes, if this process changed it.
#[derive(Debug, Default)]
pub struct Accounting {
    /// The table that says so, if it was changed.
    table: Option<String>,
}

impl Accounting {
    /// The parameter's name.
    pub const NAME: &str = "net.netfilter.nf_conntrack_acct";

    /// Switches it on, in the network namespace of the calling thread, if it is off; whether this
    /// changed anything. `table` is the name of the interception's own table.
    ///
    /// # Errors
    /// It is off and cannot be changed.
    pub fn switch_on(&mut self, table: &str) -> io::Result<bool> {
        if is_on() {
            return Ok(false);
        }
        let table = format!("{table}{SUFFIX}");
        let comment = own_tables::comment(&[Parameter::AccountingWasOff]);
        // First the note: there is no moment at which a crash would leave it on for ever.
        let text = format!(
            "{}table inet {table} {{\n\tcomment \"{comment}\"\n}}\n",
            rules::removal(&table)
        );
        nftables::apply(&text).map_err(io::Error::other)?;
        self.table = Some(table);
        let written = fs::write(FILE, "1");
        if written.is_err() {
            self.restore();
        }
        written.map(|()| true)
    }

    fn restore(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        switch_off();
        // Nobody is left to tell; the next run removes it.
        let _ = nftables::apply(&rules::removal(&table));
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Switches it off, as far as this process may.
pub(crate) fn switch_off() {
    let _ = fs::write(FILE, "0");
}

fn is_on() -> bool {
    fs::read_to_string(FILE).is_ok_and(|text| text.trim() != "0")
}
