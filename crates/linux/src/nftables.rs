//! Rulesets of nftables, set and read by the program `nft` (nft(8)).
//!
//! A ruleset takes effect completely or not at all: `nft -f` sends it as one transaction. The calling process
//! must be permitted to run programs, and needs `CAP_NET_ADMIN` of its network namespace. Named counters, the
//! number of the ruleset, and changes by other programs are read by netlink, without `nft`.

mod bounded;
pub(crate) mod counter;
pub(crate) mod generation;
mod patience;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;

use crate::capability::{self, Capability};
pub use counter::{Counter, named_counters};
pub use generation::{Generation, generation, generation_after};
use patience::Patience;
pub use watch::RulesetWatch;

/// Most bytes of nft's error output that are shown.
const COMPLAINT_LIMIT: usize = 2_000;

/// A ruleset could not be read or changed.
#[derive(Debug, Error)]
pub enum NftablesError {
    /// The program is missing.
    #[error("cannot run nft: {0} (install it: apt install nftables)")]
    Run(#[source] io::Error),
    /// The program did not end, and was killed.
    #[error("nft did not end within {} s, and was killed: is the machine overloaded?", .0.as_secs())]
    Late(Duration),
    /// The program refused.
    #[error("nft cannot {action}: {complaint}")]
    Refused {
        /// What the call was for.
        action: &'static str,
        /// The program's error output.
        complaint: String,
    },
}

/// Puts a ruleset in force, whole or not at all.
///
/// # Errors
/// See [`NftablesError`].
pub fn apply(ruleset: &str) -> Result<(), NftablesError> {
    succeed("set rules", &run(&["-f", "-"], ruleset)?)
}

/// From now on, `nft` is killed after 5 s instead of 30 s; on a slow machine, after more than 5 s. A daemon calls this
/// once it works: from then on, it has other work than to wait for a program that hangs.
pub fn limit_waits() {
    WORKS.store(true, Ordering::Relaxed);
}

/// Checks whether the kernel would accept a ruleset; changes nothing.
///
/// # Errors
/// The kernel would refuse it. See [`NftablesError`].
pub fn check(ruleset: &str) -> Result<(), NftablesError> {
    succeed("check rules", &run(&["-c", "-f", "-"], ruleset)?)
}

/// All tables as `nft` prints them, without the elements of sets.
///
/// # Errors
/// See [`NftablesError`].
pub fn all() -> Result<String, NftablesError> {
    let output = run(&["-s", "-t", "list", "ruleset"], "")?;
    succeed("list rules", &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the kernel would accept a ruleset; changes nothing.
///
/// # Errors
/// `nft` cannot be run.
pub fn is_possible(ruleset: &str) -> Result<bool, NftablesError> {
    Ok(run(&["-c", "-f", "-"], ruleset)?.status.success())
}

/// A table as `nft` prints it, without counters; `None` where there is none.
///
/// # Errors
/// `nft` cannot be run.
pub fn table(family: &str, name: &str) -> Result<Option<String>, NftablesError> {
    let output = run(&["-s", "list", "table", family, name], "")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(text))
}

/// A table as `nft` prints it, without counters and without the elements of its sets, which are not
/// even read; `None` where there is none.
///
/// # Errors
/// `nft` cannot be run.
pub fn table_without_elements(family: &str, name: &str) -> Result<Option<String>, NftablesError> {
    let output = run(&["-s", "-t", "list", "table", family, name], "")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(text))
}

/// A set as `nft` prints it; `None` where there is none.
///
/// # Errors
/// `nft` cannot be run.
pub fn set(family: &str, table: &str, name: &str) -> Result<Option<String>, NftablesError> {
    let output = run(&["-s", "list", "set", family, table, name], "")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(text))
}

/// A chain at a hook of the kernel, in the families `ip`, `ip6` and `inet`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaseChain {
    /// Its priority: the lower, the earlier.
    pub priority: i64,
    /// Family of its table.
    pub family: String,
    /// Name of its table.
    pub table: String,
    /// Its name.
    pub name: String,
}

/// All chains at a hook (`input`, `output` …), in the order in which the kernel runs them.
///
/// # Errors
/// `nft` cannot be run, or refuses.
pub fn base_chains(hook: &str) -> Result<Vec<BaseChain>, NftablesError> {
    Ok(chains_at(
        hook,
        &objects(&["-j", "list", "chains"], "chain")?,
    ))
}

pub(crate) fn chains_at(hook: &str, all: &[Value]) -> Vec<BaseChain> {
    let mut chains: Vec<BaseChain> = all
        .iter()
        .filter(|chain| chain["hook"] == hook)
        .filter_map(|chain| {
            let text = |key: &str| chain[key].as_str().map(str::to_owned);
            Some(BaseChain {
                priority: chain["prio"].as_i64()?,
                family: text("family")?,
                table: text("table")?,
                name: text("name")?,
            })
        })
        .filter(|chain| matches!(chain.family.as_str(), "ip" | "ip6" | "inet"))
        .collect();
    chains.sort();
    chains
}

/// The names of all tables, with their families.
///
/// # Errors
/// As [`base_chains`].
pub fn tables() -> Result<Vec<(String, String)>, NftablesError> {
    let tables = objects(&["-j", "list", "tables"], "table")?;
    let names = tables.iter().filter_map(|table| {
        let text = |key: &str| table[key].as_str().map(str::to_owned);
        Some((text("family")?, text("name")?))
    });
    Ok(names.collect())
}

/// All rules as libnftables-json(5) has them. The elements of sets are not even read.
///
/// # Errors
/// As [`base_chains`].
pub fn rules() -> Result<Vec<Value>, NftablesError> {
    objects(&["-j", "-t", "list", "ruleset"], "rule")
}

/// The named counters of a table: how many packets each has seen.
///
/// # Errors
/// As [`base_chains`]; also where there is no such table.
pub fn counters(family: &str, table: &str) -> Result<BTreeMap<String, u64>, NftablesError> {
    let counters = objects(
        &["-j", "list", "counters", "table", family, table],
        "counter",
    )?;
    let packets = counters.iter().filter_map(|counter| {
        Some((
            counter["name"].as_str()?.to_owned(),
            counter["packets"].as_u64()?,
        ))
    });
    Ok(packets.collect())
}

/// The version of `nft`, as it prints it.
///
/// # Errors
/// `nft` cannot be run.
pub fn version() -> Result<String, NftablesError> {
    let output = run(&["--version"], "")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The objects of one kind that `nft -j` lists.
fn objects(arguments: &[&str], kind: &str) -> Result<Vec<Value>, NftablesError> {
    let output = run(arguments, "")?;
    succeed("list the ruleset", &output)?;
    listed(&output.stdout, kind).map_err(|error| NftablesError::Run(error.into()))
}

/// The objects of one kind in a listing, as libnftables-json(5) has them.
///
/// # Errors
/// The listing is not JSON.
pub fn listed(listing: &[u8], kind: &str) -> Result<Vec<Value>, serde_json::Error> {
    let mut list: Value = serde_json::from_slice(listing)?;
    let all = list.get_mut("nftables").and_then(Value::as_array_mut);
    Ok(all
        .into_iter()
        .flatten()
        .filter_map(|object| object.get_mut(kind).map(Value::take))
        .collect())
}

fn succeed(action: &'static str, output: &Output) -> Result<(), NftablesError> {
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim().chars().take(COMPLAINT_LIMIT).collect();
    Err(NftablesError::Refused { action, complaint })
}

/// Whether [`limit_waits`] was called. All calls before have the longest limit: the kernel loads its modules at the first
/// rules.
static WORKS: AtomicBool = AtomicBool::new(false);

/// How long the next call may take.
static PATIENCE: Mutex<Patience> = Mutex::new(Patience::new());

fn run(arguments: &[&str], input: &str) -> Result<Output, NftablesError> {
    let patience = || PATIENCE.lock().unwrap_or_else(PoisonError::into_inner);
    let starts = !WORKS.load(Ordering::Relaxed);
    // Listing everything may be much.
    let limit = match starts || arguments.contains(&"ruleset") {
        true => patience::LONG,
        false => patience().limit(),
    };
    let begun = Instant::now();
    if !patience().may_start(begun) {
        return Err(NftablesError::Late(limit));
    }
    let mut nft = Command::new("nft");
    nft.args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin");
    let start = |nft: &mut Command| capability::pass_on(Capability::CAP_NET_ADMIN, || nft.spawn());
    match bounded::output(nft, start, input.as_bytes(), limit) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            patience().handle_kill(Instant::now());
            Err(NftablesError::Late(limit))
        }
        other => {
            patience().handle_end(begun.elapsed());
            other.map_err(NftablesError::Run)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_listing_has_no_objects() {
        let count = |listing: &str| {
            listed(listing.as_bytes(), "rule")
                .map(|rules| rules.len())
                .ok()
        };
        assert_eq!(
            count(r#"{"nftables": [{"rule": {}}, {"chain": {}}, 7]}"#),
            Some(1)
        );
        for other in ["7", "[]", "null", "\"a\"", "{}", r#"{"nftables": 7}"#] {
            assert_eq!(count(other), Some(0), "{other}");
        }
        assert_eq!(count("{"), None);
    }
}
