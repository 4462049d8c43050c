//! A program inside a host of a path, while the links, the servers and the proxies run.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use midspan_linux::process::RunningProgram;
use midspan_path::{Flow, NodeIndex};

use crate::contained::contained;
use crate::network::{Network, Service};
use crate::supported;
use crate::workload::web_server::Files;
use crate::{Case, LabError};

/// How long a stopped program may take to end.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two looks at the program.
const LOOK: Duration = Duration::from_millis(10);

/// The network around the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// The nodes in the order of the path file, each with its address.
    pub nodes: Vec<(String, IpAddr)>,
    /// The web server of the host's first flow, as its client reaches it; `None` if no flow starts at
    /// the host.
    pub web_server: Option<SocketAddr>,
    /// The address of the file that this flow transfers.
    pub file: Option<String>,
}

/// A program that is to run inside a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    /// The host.
    pub host: NodeIndex,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Environment variables in addition to those of the caller and to `MIDSPAN_…`.
    pub variables: Vec<(OsString, OsString)>,
}

/// Builds the network of a case and runs a program inside a host of it, with the caller's terminal. Calls
/// `ready` before the program starts. If the program still runs 2 s after `stop` has become true, it is
/// killed. Returns the program's exit status; it is 127 if there is no such program.
///
/// # Errors
/// The lab does not support the path, the network cannot be built, a server or a proxy does not start, or
/// unshare(1) is missing.
pub fn shell(
    case: &Case,
    inside: &Inside,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&Surroundings),
) -> Result<ExitStatus, LabError> {
    let path = &case.path;
    supported::check(path)?;
    let network = Network::build(path, std::slice::from_ref(case))?;
    network.set_proxy_routes(case)?;
    let _proxies = network.start_proxies(case)?;
    let flow = path.flows.iter().find(|flow| flow.from == inside.host);
    let surroundings = Surroundings::of(&network, case, inside.host, flow);
    ready(&surroundings);
    let mut command = contained(&inside.command)?;
    command
        .envs(surroundings.variables(&path.node(inside.host).name))
        .envs(inside.variables.iter().cloned());
    // Schedules and recorded traces of the links begin now.
    network.topology.reset_links(path, path.seed)?;
    let child = network.topology.node(inside.host).spawn(command)?;
    let mut program = RunningProgram::new(child, Duration::ZERO);
    let mut stopped = None;
    loop {
        if let Some(status) = program.wait_for(LOOK) {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) {
            // Ctrl-C reaches the program, too. Some programs print their results then.
            let since: Instant = *stopped.get_or_insert_with(Instant::now);
            if since.elapsed() > GRACE {
                program.signal(rustix::process::Signal::KILL);
            }
        }
    }
}

impl Surroundings {
    /// Of the host `host`, for a flow that starts there.
    pub(crate) fn of(
        network: &Network<'_>,
        case: &Case,
        host: NodeIndex,
        flow: Option<&Flow>,
    ) -> Self {
        let path = network.path;
        let flow = flow.filter(|flow| flow.from == host);
        let web_server = flow.map(|flow| network.target(case, flow, Service::Web));
        let file = flow.and_then(|flow| flow.workload.file_size());
        let file = file.map(|size| Files::name(size.bytes()));
        let nodes = path.nodes.iter().enumerate();
        Self {
            nodes: nodes
                .map(|(index, node)| {
                    let address = network.topology.address(NodeIndex(index));
                    (node.name.clone(), address)
                })
                .collect(),
            file: web_server
                .zip(file)
                .map(|(server, file)| format!("http://{server}/{file}")),
            web_server,
        }
    }

    /// The environment variables of a program in the host `host`.
    pub(crate) fn variables(&self, host: &str) -> Vec<(OsString, OsString)> {
        let mut variables = vec![("MIDSPAN_HOST", host.to_owned())];
        if let Some(server) = self.web_server {
            variables.push(("MIDSPAN_SERVER_ADDRESS", server.ip().to_string()));
            variables.push(("MIDSPAN_SERVER_PORT", server.port().to_string()));
        }
        if let Some(file) = &self.file {
            variables.push(("MIDSPAN_URL", file.clone()));
        }
        let named = variables.into_iter();
        named
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_finds_the_server_by_its_environment() {
        let mut surroundings = Surroundings {
            nodes: Vec::new(),
            web_server: Some("[fd77::3]:80".parse().unwrap()),
            file: Some("http://[fd77::3]:80/1000.bin".to_owned()),
        };
        let text = |surroundings: &Surroundings| -> Vec<String> {
            let variables = surroundings.variables("client").into_iter();
            variables
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect()
        };
        assert_eq!(
            text(&surroundings),
            [
                "MIDSPAN_HOST=client",
                "MIDSPAN_SERVER_ADDRESS=fd77::3",
                "MIDSPAN_SERVER_PORT=80",
                "MIDSPAN_URL=http://[fd77::3]:80/1000.bin",
            ]
        );
        surroundings.web_server = None;
        surroundings.file = None;
        assert_eq!(text(&surroundings), ["MIDSPAN_HOST=client"]);
    }
}
