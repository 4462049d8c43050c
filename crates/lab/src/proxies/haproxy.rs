//! HAProxy from Debian, for comparison.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::program::{Launch, Program as Running};

use super::Forward;
use crate::LabError;
use crate::error::at;
use crate::programs::Program;
use crate::workload::wait_until_listening;

/// Starts HAProxy on `node` with splicing and 1 MB pipes, its fastest settings for bulk.
///
/// Its congestion control and initial window come from the node's routes.
pub fn start(
    node: &NetworkNamespace,
    forwards: &[Forward],
    folder: &Path,
) -> Result<Running, LabError> {
    let configuration = folder.join("haproxy.cfg");
    fs::write(&configuration, configuration_text(forwards)).map_err(at(&configuration))?;
    let launch = Launch::new(Program::Haproxy.command()?.get_program())
        .args(["-db", "-f"])
        .arg(&configuration)
        .folder(folder)
        .log_file("haproxy.log")
        .without_output()
        .inside(node)
        .grace(Duration::from_secs(1));
    let mut program = launch.start()?;
    for forward in forwards {
        wait_until_listening(node, forward.listen, "haproxy", &mut program)?;
    }
    Ok(program)
}

fn configuration_text(forwards: &[Forward]) -> String {
    let mut text = "global\n\
                    \x20   maxconn 5000\n\
                    \x20   tune.pipesize 1048576\n\
                    defaults\n\
                    \x20   mode tcp\n\
                    \x20   option splice-auto\n\
                    \x20   option splice-request\n\
                    \x20   option splice-response\n\
                    \x20   timeout connect 30s\n\
                    \x20   timeout client 10m\n\
                    \x20   timeout server 10m\n"
        .to_owned();
    for (index, forward) in forwards.iter().enumerate() {
        let _ = write!(
            text,
            "listen l{index}\n    bind {}\n    server s{index} {}\n",
            forward.listen, forward.to
        );
    }
    text
}
