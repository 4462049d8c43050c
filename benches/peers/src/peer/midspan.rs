//! Midspan.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::Peer;
use crate::Failure;
use crate::network::CLIENT_SIDE;

const CONFIGURATION: &str = "midspan.toml";
const LOG: &str = "peer.log";

/// Runs the program, or the one beside this program.
pub fn command(peer: Peer, program: Option<&Path>, folder: &Path) -> Result<Command, Failure> {
    // A line for each session would be measured too, and the others write none.
    let mut text = String::from("[log]\nlevel = \"warn\"\n");
    match peer {
        Peer::MidspanForward => {
            for (index, (from, to)) in super::forwards().enumerate() {
                writeln!(
                    text,
                    "[[listener]]\nname = \"l{index}\"\nlisten = \"{from}\"\nto = \"{to}\""
                )?;
            }
        }
        _ => {
            let handshake = match peer {
                Peer::MidspanEarly => "early",
                _ => "end-to-end",
            };
            writeln!(
                text,
                "[[listener]]\nname = \"gateway\"\nmode = \"transparent\"\n\
                 interfaces = [\"{CLIENT_SIDE}\"]\nhandshake = \"{handshake}\""
            )?;
        }
    }
    let file = folder.join(CONFIGURATION);
    std::fs::write(&file, text)?;
    let program = match program {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.with_file_name("midspan"),
    };
    if !program.exists() {
        let name = program.display();
        return Err(format!("{name} is missing: cargo build --release -p midspan").into());
    }
    let mut command = Command::new(program);
    // Ready is said by one byte on standard error, before anything is logged.
    command
        .args(["run", "--ready-fd", "2", "--config"])
        .arg(file);
    Ok(command)
}

/// Whether it has said that it is ready.
pub fn is_ready(folder: &Path) -> bool {
    std::fs::metadata(folder.join(LOG)).is_ok_and(|log| log.len() > 0)
}
