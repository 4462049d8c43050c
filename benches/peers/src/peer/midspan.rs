//! Midspan.

use std::fmt::Write as _;
use std::path::Path;

use midspan_testbed::program::Launch;

use super::Peer;
use crate::Failure;
use crate::network::CLIENT_SIDE;

/// Starts the executable `program`; by default `midspan` in the folder of this program.
pub fn launch(peer: Peer, program: Option<&Path>) -> Result<Launch<'static>, Failure> {
    // Without log lines for sessions, because the other peers write none.
    let mut text = String::from("[log]\nlevel = \"warn\"\n");
    // All load comes from a few addresses, which would be limited to a share of the capacity.
    text.push_str("[limits]\nsessions_per_client = 1000000\n");
    if matches!(peer, Peer::MidspanClientRates) {
        text.push_str("connection_rate_per_client = 1000000\nrate_per_client = \"1000 Gbit/s\"\n");
    }
    match peer {
        Peer::MidspanForward | Peer::MidspanClientRates | Peer::OtherForward => {
            for (index, (from, to)) in super::forwards().enumerate() {
                writeln!(
                    text,
                    "[[listener]]\nname = \"l{index}\"\nlisten = \"{from}\"\nto = \"{to}\""
                )?;
            }
        }
        _ => {
            let handshake = match peer {
                Peer::MidspanEarly | Peer::MidspanExpress | Peer::OtherEarly => "early",
                _ => "end-to-end",
            };
            writeln!(
                text,
                "[[listener]]\nname = \"gateway\"\nmode = \"transparent\"\n\
                 interfaces = [\"{CLIENT_SIDE}\"]\nhandshake = \"{handshake}\""
            )?;
            if peer == Peer::MidspanExpress {
                text.push_str("firewall_cache = \"10 s\"\n");
            }
        }
    }
    let program = match program {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.with_file_name("midspan"),
    };
    if !program.exists() {
        let name = program.display();
        return Err(format!("{name} is missing: cargo build --release -p midspan").into());
    }
    Ok(Launch::midspan(program).configuration(&text))
}
