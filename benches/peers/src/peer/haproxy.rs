//! HAProxy, from Debian.

use std::fmt::Write as _;
use std::path::Path;

use midspan_lab::programs::Program;
use midspan_testbed::program::Launch;

use crate::Failure;

/// Starts HAProxy. `tuned`: splicing forced, with pipes of 1 MB, its fastest settings for bulk.
pub fn launch(tuned: bool, folder: &Path) -> Result<Launch<'static>, Failure> {
    let mut text = String::from("global\n    maxconn 9500\n");
    if tuned {
        // Just enough pipes for the flows. HAProxy reserves descriptors for all pipes at its start,
        // in addition to those for 9,500 sessions, and a process may have 20,000.
        text.push_str("    tune.pipesize 1048576\n    maxpipes 256\n");
    }
    text.push_str("defaults\n    mode tcp\n    timeout connect 30s\n");
    text.push_str("    timeout client 10m\n    timeout server 10m\n    maxconn 9500\n");
    if tuned {
        text.push_str("    option splice-request\n    option splice-response\n");
    }
    for (index, (from, to)) in super::forwards().enumerate() {
        writeln!(
            text,
            "listen l{index}\n    bind {from}\n    server s{index} {to}"
        )?;
    }
    let file = folder.join("haproxy.cfg");
    std::fs::write(&file, text)?;
    let program = Program::Haproxy.command()?;
    Ok(Launch::new(program.get_program())
        .args(["-db", "-f"])
        .arg(file))
}
