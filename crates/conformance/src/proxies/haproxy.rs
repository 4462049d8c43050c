//! HAProxy from Debian, in TCP mode with splicing.

use std::fmt::Write as _;

use midspan_lab::programs::Program;
use midspan_testbed::program::Launch;
use rustix::process::Signal;

use super::{
    Conditions, Proxy, Running, Signals, first_line, folder, forwards, on_gateway, start_listening,
};
use crate::Error;
use crate::network::Network;

/// HAProxy with a master process and a worker process.
pub struct Haproxy;

impl Proxy for Haproxy {
    fn name(&self) -> String {
        "haproxy".to_owned()
    }

    fn describe(&self) -> Result<String, String> {
        let mut command = Program::Haproxy
            .command()
            .map_err(|error| error.to_string())?;
        let line = first_line(command.arg("-v")).ok_or("haproxy does not run")?;
        let version: Vec<&str> = line.split_whitespace().take(3).collect();
        Ok(format!("{}, TCP mode with splicing", version.join(" ")))
    }

    fn answers_early(&self) -> bool {
        true
    }

    fn start(&self, network: &Network, conditions: Conditions) -> Result<Option<Running>, Error> {
        let gateway = &network.gateway;
        let folder = folder()?;
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, configuration(conditions)).map_err(Error::file(&file))?;
        let launch = Launch::new(Program::Haproxy.command()?.get_program())
            .args(["-W", "-db", "-f"])
            .arg(&file)
            .folder(folder.path());
        // HAProxy sets the limit of descriptors itself, from `maxconn`.
        let launch = on_gateway(launch, gateway, Conditions::default());
        let program = start_listening("haproxy", gateway, launch)?;
        Ok(Some(Running {
            programs: vec![program],
            signals: Signals {
                reload: Signal::USR2,
                drain: Signal::USR1,
                stop: Signal::TERM,
            },
            _folder: Some(folder),
        }))
    }
}

fn configuration(conditions: Conditions) -> String {
    let connections = if conditions.few_descriptors { 40 } else { 7000 };
    let pipes = if conditions.few_pipes {
        "maxpipes 2\n"
    } else {
        ""
    };
    let keepalive = if conditions.keepalive {
        "option clitcpka\noption srvtcpka\n"
    } else {
        ""
    };
    let mut text = format!(
        "global\nmaxconn {connections}\n{pipes}defaults\nmode tcp\noption splice-auto\n\
         option splice-request\noption splice-response\n{keepalive}\
         timeout connect 30s\ntimeout client 10m\ntimeout server 10m\n"
    );
    for (index, (listen, to)) in forwards().enumerate() {
        let _ = write!(
            text,
            "listen l{index}\nbind {listen}\nserver s{index} {to}\n"
        );
    }
    text
}
