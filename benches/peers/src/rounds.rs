//! Rounds of runs, and how an interrupted measurement continues.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::peer::Peer;
use crate::run::{MANY_FLOWS, Value, measure as run};
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
    /// Duration of the run, in seconds.
    pub seconds: f64,
}

/// All runs of all rounds. Runs in the state file are not repeated.
pub fn measure(arguments: &Arguments) -> Result<Vec<Run>, Failure> {
    let mut done = match &arguments.state {
        Some(file) => finished(file)?,
        None => Vec::new(),
    };
    done.retain(|run| run.round < arguments.rounds && arguments.peers.contains(&run.peer));
    let mut state = arguments.state.as_deref().map(open).transpose()?;
    // One network for each peer. Sockets in TIME-WAIT on a gateway where Midspan has ended would
    // keep the kernel from forwarding the same addresses and ports for plain routing.
    let mut places = BTreeMap::new();
    for peer in &arguments.peers {
        let network = Network::build()?;
        let services = Services::start(&network.server, arguments.clients, MANY_FLOWS)?;
        places.insert(*peer, (network, services));
    }
    let bar = ProgressBar::new((arguments.rounds * arguments.peers.len()) as u64);
    bar.set_style(indicatif::ProgressStyle::with_template(
        "{bar:30} {pos}/{len} runs  {elapsed_precise}, {eta} left  {msg}",
    )?);
    bar.set_position(done.len() as u64);
    for round in 0..arguments.rounds {
        for peer in order(&arguments.peers, round) {
            if done
                .iter()
                .any(|run| (run.round, run.peer) == (round, peer))
            {
                continue;
            }
            bar.set_message(peer.name());
            let (network, services) = places.get(&peer).ok_or("a peer without a network")?;
            let start = Instant::now();
            let memory = round < arguments.memory_rounds;
            let values = run(peer, network, services, arguments, memory)
                .map_err(|failure| format!("{}: {failure}", peer.name()))?;
            let run = Run {
                round,
                peer,
                values,
                seconds: start.elapsed().as_secs_f64(),
            };
            if let Some(state) = &mut state {
                writeln!(state, "{}", serde_json::to_string(&run)?)?;
            }
            done.push(run);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(done)
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

fn open(file: &Path) -> Result<File, Failure> {
    let name = file.display().to_string();
    let open = OpenOptions::new().create(true).append(true).open(file);
    open.map_err(|error| format!("{name}: {error}").into())
}

/// The runs in a state file. A line that is incomplete, because the program was stopped, does not
/// count.
fn finished(file: &Path) -> Result<Vec<Run>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", file.display()).into()),
    }
}
