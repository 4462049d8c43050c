//! nginx's stream module from Debian.

use std::fmt::Write as _;
use std::path::Path;

use midspan_lab::programs::Program;
use midspan_testbed::program::Launch;
use rustix::process::Signal;

use super::{
    Conditions, Proxy, Running, Signals, first_line, folder, forwards, on_gateway, start_listening,
};
use crate::Error;
use crate::network::Network;

/// The place where Debian's package `libnginx-mod-stream` installs the module.
const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// nginx with a master process and a worker process.
pub struct Nginx;

impl Proxy for Nginx {
    fn name(&self) -> String {
        "nginx".to_owned()
    }

    fn describe(&self) -> Result<String, String> {
        let mut command = Program::Nginx
            .command()
            .map_err(|error| error.to_string())?;
        if !Path::new(MODULE).is_file() {
            return Err("its stream module is not installed: \
                        apt-get install libnginx-mod-stream"
                .to_owned());
        }
        let line = first_line(command.arg("-v")).ok_or("nginx does not run")?;
        let version = line.trim_start_matches("nginx version: ").to_owned();
        Ok(format!("{version}, stream module with proxy_half_close"))
    }

    fn answers_early(&self) -> bool {
        true
    }

    fn start(&self, network: &Network, conditions: Conditions) -> Result<Option<Running>, Error> {
        let gateway = &network.gateway;
        let folder = folder()?;
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration(conditions, folder.path()))
            .map_err(Error::file(&file))?;
        let launch = Launch::new(Program::Nginx.command()?.get_program())
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .folder(folder.path());
        let launch = on_gateway(launch, gateway, Conditions::default());
        let program = start_listening("nginx", gateway, launch)?;
        Ok(Some(Running {
            programs: vec![program],
            signals: Signals {
                reload: Signal::HUP,
                drain: Signal::QUIT,
                stop: Signal::TERM,
            },
            _folder: Some(folder),
        }))
    }
}

fn configuration(conditions: Conditions, folder: &Path) -> String {
    // The listening sockets take 14 of nginx's connections.
    let connections = if conditions.few_descriptors {
        100
    } else {
        16000
    };
    let keepalive = if conditions.keepalive {
        " so_keepalive=on"
    } else {
        ""
    };
    let mut text = format!(
        "load_module {MODULE};\nuser root;\ndaemon off;\nworker_processes 1;\n\
         worker_rlimit_nofile 18000;\npid {}/pid;\nevents {{ worker_connections {connections}; }}\n\
         stream {{\nproxy_connect_timeout 30s;\nproxy_timeout 10m;\nproxy_half_close on;\n\
         proxy_socket_keepalive {};\n",
        folder.display(),
        if conditions.keepalive { "on" } else { "off" }
    );
    for (listen, to) in forwards() {
        let _ = writeln!(
            text,
            "server {{ listen {listen}{keepalive}; proxy_pass {to}; }}"
        );
    }
    text + "}\n"
}
