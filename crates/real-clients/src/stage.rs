//! One run of a case: its network, its gateway, its server, and its client over each protocol.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use midspan_conformance::network::{EXPLICIT_PORT, Network, Place, Target};
use midspan_conformance::proxies::midspan::start as start_midspan;
use midspan_conformance::proxies::{Conditions, Running};
use midspan_conformance::{Error as NetworkError, Family};
use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::network::Configure;

use crate::Error;
use crate::case::{Case, Sessions};
use crate::gateway::Gateway;
use crate::plan::Plan;
use crate::script::{Ended, Script, Variables, tail};
use crate::transcript::Transcript;

/// Time limit of a server's start, and of a case's preparation.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Time limit of Midspan's end after its sessions have ended.
const END_LIMIT: Duration = Duration::from_secs(20);

/// The lines that a client printed over one protocol, and output that may help to find a fault.
#[derive(Debug, Clone)]
pub(crate) struct Played {
    pub(crate) family: Family,
    pub(crate) seen: Transcript,
    /// Standard error of client and server, and the log of Midspan.
    pub(crate) background: String,
}

/// A case, and the files that all its runs use.
pub(crate) struct Stage<'a> {
    plan: &'a Plan,
    case: &'a Case,
    common: tempfile::TempDir,
}

impl<'a> Stage<'a> {
    /// Prepares a case.
    pub(crate) fn new(plan: &'a Plan, case: &'a Case) -> Result<Self, Error> {
        let common = folder()?;
        if !case.prepare.is_empty() {
            let nowhere = NetworkNamespace::new("preparation")?;
            let variables = vec![
                ("COMMON", common.path().display().to_string()),
                ("DIR", common.path().display().to_string()),
            ];
            run_to_end(
                case,
                "prepare",
                &nowhere,
                case.prepare,
                &variables,
                common.path(),
            )?;
        }
        Ok(Self { plan, case, common })
    }

    /// Runs the case with this kind of gateway, over each of its protocols.
    pub(crate) fn play(&self, gateway: Gateway) -> Result<Vec<Played>, Error> {
        let network = Network::new()?;
        let folder = folder()?;
        let rules = self.case.firewall.rules(gateway)?;
        network.gateway.apply_rules(&rules)?;
        let variables = self.variables(&network, gateway, folder.path());
        if !self.case.gateway.is_empty() {
            let place = &network.gateway;
            run_to_end(
                self.case,
                "gateway",
                place,
                self.case.gateway,
                &variables,
                folder.path(),
            )?;
        }
        let mut midspan = match gateway.configuration(&folder.path().join("control.sock")) {
            None => None,
            Some(text) => {
                let program = &self.plan.program;
                let none = Conditions::default();
                let name = gateway.name();
                match start_midspan(program, name, &network.gateway, none, &text) {
                    Ok(running) => Some(running),
                    Err(error @ NetworkError::Start { .. }) => {
                        return Ok(self.all_saw(&format!("midspan: {error}")));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let server = match self.start_server(&network, &variables, folder.path())? {
            Ok(server) => server,
            Err(line) => return Ok(self.all_saw(&line)),
        };
        let mut played = Vec::new();
        for family in self.families() {
            played.push(self.play_client(&network, family, &variables, folder.path())?);
        }
        if let Some(midspan) = &mut midspan {
            self.judge_midspan(midspan, gateway, &mut played)?;
        }
        if let Some(server) = server {
            let errors = server.errors();
            for one in &mut played {
                one.background += &section("server", &errors);
            }
        }
        Ok(played)
    }

    /// The protocols of the case that the plan contains.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
        let families = self.case.families.iter().copied();
        families.filter(|family| self.plan.families.contains(family))
    }

    /// This line as the only output of every client, for a run that could not start.
    fn all_saw(&self, line: &str) -> Vec<Played> {
        let families = self.families();
        let played = families.map(|family| Played {
            family,
            seen: Transcript::of(line),
            background: String::new(),
        });
        played.collect()
    }

    /// Starts the server and waits until it is ready; if it does not start, a line with the reason.
    fn start_server(
        &self,
        network: &Network,
        variables: &Variables,
        folder: &Path,
    ) -> Result<Result<Option<Script>, String>, Error> {
        if self.case.server.is_empty() {
            return Ok(Ok(None));
        }
        let text = format!("{}\nwait\nsleep infinity\n", self.case.server);
        let mut server = Script::start(&network.server, "server", &text, variables, folder)?;
        let begin = Instant::now();
        while !folder.join("ready").exists() {
            if server.has_ended() || begin.elapsed() > START_LIMIT {
                let errors = tail(&server.errors(), 500);
                return Ok(Err(format!("the server does not start: {errors}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Ok(Some(server)))
    }

    /// Runs the client's script over one protocol.
    fn play_client(
        &self,
        network: &Network,
        family: Family,
        variables: &Variables,
        folder: &Path,
    ) -> Result<Played, Error> {
        let server = Network::server_address(family, Target::Open).ip();
        let proxy = Network::explicit_address(family).ip();
        let work = folder.join(family.name());
        fs::create_dir(&work).map_err(Error::file(&work))?;
        let mut variables = variables.clone();
        variables.extend([
            ("FAMILY", family.name().to_owned()),
            ("SERVER", server.to_string()),
            ("HOST", in_url(server)),
            ("CLIENT", Network::client_address(family).to_string()),
            ("PROXY", proxy.to_string()),
            ("PROXY_HOST", in_url(proxy)),
        ]);
        // Discards what the server recorded about an earlier client.
        let by_server = folder.join("seen");
        fs::write(&by_server, "").map_err(Error::file(&by_server))?;
        open_to_all(&by_server, 0o666)?;
        let text = self.case.client;
        let mut client = Script::start(&network.client, "client", text, &variables, &work)?;
        let ended = client.finish(self.case.limit);
        let mut seen = Transcript::of(&self.without_places(folder, &client.output()));
        let lines = fs::read(&by_server).map_err(Error::file(&by_server))?;
        for line in String::from_utf8_lossy(&lines).lines() {
            seen.add(format!("server: {line}"));
        }
        seen.add(match ended {
            Ended::By(0) => END.to_owned(),
            Ended::By(code) => format!("the script ended with status {code}"),
            Ended::TooLong => format!("it still ran after {} s", self.case.limit.as_secs()),
        });
        Ok(Played {
            family,
            seen,
            background: section("client", &client.errors()),
        })
    }

    /// Replaces the names of temporary folders, which differ from run to run, by fixed names.
    fn without_places(&self, folder: &Path, text: &str) -> String {
        let text = text.replace(&folder.display().to_string(), "DIR");
        text.replace(&self.common.path().display().to_string(), "COMMON")
    }

    /// Drains Midspan, and adds its faults to each client's lines.
    fn judge_midspan(
        &self,
        midspan: &mut Running,
        gateway: Gateway,
        played: &mut [Played],
    ) -> Result<(), Error> {
        midspan.drain();
        let status = midspan.wait_for(END_LIMIT);
        let log = midspan.log();
        for one in played {
            match status {
                Some(status) if status.success() => {}
                Some(status) => one.seen.add(format!("midspan: ended with {status}")),
                None => one.seen.add("midspan: did not end".to_owned()),
            }
            let carried = sessions(&log, one.family);
            match self.case.sessions {
                Sessions::AtLeast(least) if carried < least => {
                    one.seen
                        .add(format!("midspan: carried {carried} sessions, not {least}"));
                }
                Sessions::None if carried > 0 && gateway.is_transparent() => {
                    one.seen
                        .add(format!("midspan: carried {carried} sessions, not none"));
                }
                _ => {}
            }
            for error in errors(&log) {
                one.seen.add(format!("midspan: {error}"));
            }
            one.background += &section("midspan", &tail(&log, 2000));
        }
        Ok(())
    }

    /// The variables of all scripts of a run.
    fn variables(&self, network: &Network, gateway: Gateway, folder: &Path) -> Variables {
        let net = |place: &NetworkNamespace| {
            let descriptor = place.as_fd().as_raw_fd();
            format!("/proc/{}/fd/{descriptor}", std::process::id())
        };
        vec![
            ("VIA", gateway.name().to_owned()),
            ("DIR", folder.display().to_string()),
            ("COMMON", self.common.path().display().to_string()),
            ("MIDSPAN", self.plan.program.display().to_string()),
            ("PROXY_PORT", EXPLICIT_PORT.to_string()),
            ("NET_client", net(&network.client)),
            ("NET_access", net(network.place(Place::Access))),
            ("NET_gateway", net(&network.gateway)),
            ("NET_router", net(network.place(Place::Router))),
            ("NET_server", net(&network.server)),
        ]
    }
}

/// The last line of a script that ran to its end.
pub(crate) const END: &str = "end";

fn run_to_end(
    case: &Case,
    script: &'static str,
    place: &NetworkNamespace,
    text: &str,
    variables: &Variables,
    folder: &Path,
) -> Result<(), Error> {
    let mut running = Script::start(place, script, text, variables, folder)?;
    match running.finish(START_LIMIT) {
        Ended::By(0) => Ok(()),
        ended => Err(Error::Preparation {
            case: case.name,
            script,
            reason: format!("{ended:?} {}", running.errors()),
        }),
    }
}

/// A folder that programs of other users can enter.
fn folder() -> Result<tempfile::TempDir, Error> {
    let folder = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    open_to_all(folder.path(), 0o755)?;
    Ok(folder)
}

fn open_to_all(path: &Path, mode: u32) -> Result<(), Error> {
    let path: PathBuf = path.to_owned();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(Error::file(&path))
}

/// An address as it is written in a URL.
fn in_url(address: std::net::IpAddr) -> String {
    match address {
        std::net::IpAddr::V4(four) => four.to_string(),
        std::net::IpAddr::V6(six) => format!("[{six}]"),
    }
}

fn section(name: &str, text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!("  {name}: {}\n", text.replace('\n', "\n    ")),
    }
}

/// The number of sessions in Midspan's log whose client used this protocol.
fn sessions(log: &str, family: Family) -> usize {
    let ended = lines(log).filter(|line| line["message"] == "session ended");
    let clients = ended.filter_map(|line| line["client"].as_str().map(str::to_owned));
    clients
        .filter(|client| client.starts_with('[') == (family == Family::V6))
        .count()
}

/// The log's messages at the level of errors.
fn errors(log: &str) -> Vec<String> {
    let errors = lines(log).filter(|line| line["level"] == "ERROR");
    let mut errors: Vec<String> = errors.map(|line| line["message"].to_string()).collect();
    // A line that is not a JSON record is a message of a panic.
    errors.extend(
        log.lines()
            .filter(|line| line.contains("panicked at"))
            .map(str::to_owned),
    );
    errors
}

fn lines(log: &str) -> impl Iterator<Item = serde_json::Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"
{"level":"INFO","message":"ready"}
{"level":"INFO","message":"session ended","client":"10.1.0.2:4000","server":"10.3.0.2:80"}
{"level":"INFO","message":"session ended","client":"[fd01::2]:4000","server":"[fd03::2]:80"}
{"level":"INFO","message":"session ended","client":"[fd01::2]:4001","server":"[fd03::2]:80"}
{"level":"ERROR","message":"it broke"}
thread 'main' panicked at src/main.rs:1:
"#;

    #[test]
    fn sessions_are_counted_by_protocol() {
        assert_eq!(sessions(LOG, Family::V4), 1);
        assert_eq!(sessions(LOG, Family::V6), 2);
    }

    #[test]
    fn errors_and_panics_are_found() {
        let errors = errors(LOG);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("it broke"));
    }
}
