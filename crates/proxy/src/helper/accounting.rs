//! `net.netfilter.nf_conntrack_acct`: on while flows that pass untouched are measured.

use std::fs;

use tracing::{info, warn};

const FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_acct";

/// Connection tracking counts bytes; as before when this value goes, if this process changed it.
#[derive(Debug, Default)]
pub(super) struct Accounting {
    was_switched: bool,
}

impl Accounting {
    /// Switches it on where it is wanted and off.
    pub fn want(&mut self, wanted: bool) {
        if !wanted || is_on() {
            return;
        }
        match fs::write(FILE, "1") {
            Ok(()) => {
                info!("net.netfilter.nf_conntrack_acct = 1, to measure the control group");
                self.was_switched = true;
            }
            Err(error) => warn!(
                "the control group cannot be measured: net.netfilter.nf_conntrack_acct is 0 and \
                 cannot be changed: {error}"
            ),
        }
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        if self.was_switched {
            let _ = fs::write(FILE, "0");
        }
    }
}

fn is_on() -> bool {
    fs::read_to_string(FILE).is_ok_and(|text| text.trim() != "0")
}
