//! `net.netfilter.nf_conntrack_acct`: on while connections that pass untouched are measured.
//!
//! The former value is in the comment of an empty nftables table, so that a later run can restore
//! it if this run is killed.

use std::fs;
use std::io;

use super::own_tables::{self, Parameter};
use super::rules;
use midspan_linux::nftables;

const FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_acct";
/// The ending of the table's name.
pub(crate) const SUFFIX: &str = "_accounting";

/// Connection tracking counts bytes. When this value is dropped, the parameter is restored if this
/// process changed it.
#[derive(Debug, Default)]
pub struct Accounting {
    /// The table with the former value, if this process changed the parameter.
    table: Option<String>,
}

impl Accounting {
    /// The parameter's name.
    pub const NAME: &str = "net.netfilter.nf_conntrack_acct";

    /// Switches the parameter on, in the network namespace of the calling thread, if it is off;
    /// returns whether it was off. `table` is the name of the interception's own table.
    ///
    /// # Errors
    /// The parameter is off and cannot be changed.
    pub fn switch_on(&mut self, table: &str) -> io::Result<bool> {
        if is_on() {
            return Ok(false);
        }
        let table = format!("{table}{SUFFIX}");
        let comment = own_tables::comment(&[Parameter::AccountingWasOff]);
        // The table comes first, so that a crash at any moment leaves a note by which the next run
        // can restore the parameter.
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
        // At a drop, an error cannot be returned. The next run removes the table.
        let _ = nftables::apply(&rules::removal(&table));
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Switches the parameter off, as far as this process may.
pub(crate) fn switch_off() {
    let _ = fs::write(FILE, "0");
}

fn is_on() -> bool {
    fs::read_to_string(FILE).is_ok_and(|text| text.trim() != "0")
}
