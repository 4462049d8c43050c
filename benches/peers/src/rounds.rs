//! Rounds of runs, and how an interrupted measurement continues.

use std::collections::BTreeMap;
use std::time::Instant;

use indicatif::ProgressBar;
use midspan_records::{RunKey, RunKind, Store};
use serde::{Deserialize, Serialize};

use crate::accounting::Account;
use crate::network::Network;
use crate::peer::Peer;
use crate::run::{MANY_FLOWS, Value, measure as measure_once};
use crate::server::Services;
use crate::{Arguments, Failure};

/// The results of one run of a peer.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Run {
    /// The number of the round, from 0.
    pub round: usize,
    /// The peer.
    pub peer: Peer,
    /// The measured values.
    pub values: Vec<Value>,
    /// Where the time went while connections were opened.
    pub accounts: Vec<Account>,
    /// Duration of the run, in seconds.
    pub seconds: f64,
}

/// The stored runs. Increase the version if the meaning of a [`Value`] changes.
const RUNS: RunKind = RunKind {
    name: "peers",
    version: 2,
    before: Some("{\"round\":"),
};

/// All runs of all rounds. Stored runs are not repeated.
pub fn measure(arguments: &Arguments) -> Result<Vec<Run>, Failure> {
    let mut store: Store<Run> = match &arguments.state {
        Some(file) => Store::open(file, RUNS)?,
        None => Store::in_memory(RUNS),
    };
    if let Some(note) = store.note() {
        eprintln!("{note}");
    }
    // One network for each peer. Sockets in TIME-WAIT on a gateway where Midspan has ended would
    // keep the kernel from forwarding the same addresses and ports for plain routing.
    let mut places = BTreeMap::new();
    for peer in &arguments.peers {
        let network = Network::build(&arguments.congestion_control)?;
        let services = Services::start(&network.server, arguments.clients, MANY_FLOWS)?;
        places.insert(*peer, (network, services));
    }
    let bar = ProgressBar::new((arguments.rounds * arguments.peers.len()) as u64);
    bar.set_style(indicatif::ProgressStyle::with_template(
        "{bar:30} {pos}/{len} runs  {elapsed_precise}, {eta} left  {msg}",
    )?);
    let mut done = Vec::new();
    for round in 0..arguments.rounds {
        for peer in order(&arguments.peers, round) {
            bar.set_message(peer.name());
            let key = key(peer, round, arguments);
            let run = match store.get(&key) {
                Some(run) => run.clone(),
                None => {
                    let run = run(peer, round, &places, arguments)?;
                    store.put(&key, run.clone())?;
                    run
                }
            };
            done.push(run);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(done)
}

/// A network for each peer, with the servers on it.
type Places = BTreeMap<Peer, (Network, Services)>;

/// Makes one run.
fn run(peer: Peer, round: usize, places: &Places, arguments: &Arguments) -> Result<Run, Failure> {
    let (network, services) = places.get(&peer).ok_or("a peer without a network")?;
    let start = Instant::now();
    let memory = has_memory(round, arguments);
    let measured = measure_once(peer, network, services, arguments, memory)
        .map_err(|failure| format!("{}: {failure}", peer.name()))?;
    Ok(Run {
        round,
        peer,
        values: measured.values,
        accounts: measured.accounts,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Whether a round measures idle sessions.
const fn has_memory(round: usize, arguments: &Arguments) -> bool {
    round < arguments.memory_rounds
}

/// What distinguishes a run from others: the round, the peer, and how much is measured.
fn key(peer: Peer, round: usize, arguments: &Arguments) -> RunKey {
    let key = RunKey::new()
        .with("peer", peer.name())
        .with("round", round)
        .with("settle seconds", arguments.settle_seconds)
        .with("congestion control", &arguments.congestion_control)
        .with("bulk seconds", arguments.bulk_seconds)
        .with("connection seconds", arguments.connection_seconds)
        .with("clients", arguments.clients)
        .with("round trips", arguments.round_trips);
    if has_memory(round, arguments) {
        key.with("idle sessions", arguments.sessions)
            .with("idle seconds", arguments.idle_seconds)
    } else {
        key
    }
}

/// The order of a round. Each round begins with another peer, and every second round is reversed,
/// so that no peer always follows the same one.
fn order(peers: &[Peer], round: usize) -> Vec<Peer> {
    let mut order = peers.to_vec();
    order.rotate_left(round % peers.len().max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_run_is_found_again_unless_it_measures_something_else() {
        let of = |options: &[&str]| Arguments::parse_from([&["peers"], options].concat());
        let one = |round, options: &[&str]| key(Peer::Haproxy, round, &of(options));
        let first = one(0, &[]);
        assert_eq!(first, one(0, &["--rounds", "20", "--state", "file"]));
        assert_ne!(first, one(1, &[]));
        assert_ne!(first, key(Peer::Nginx, 0, &of(&[])));
        assert_ne!(first, one(0, &["--bulk-seconds", "1"]));
        assert_ne!(first, one(0, &["--memory-rounds", "0"]));
        // The number of idle sessions is of no consequence for a round without them.
        assert_eq!(one(3, &[]), one(3, &["--sessions", "10"]));
    }
}
