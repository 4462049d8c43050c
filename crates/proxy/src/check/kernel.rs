//! The features of the kernel.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use midspan_gateway::initial_window::RaisingPlace;
use midspan_gateway::interception::features;
use midspan_linux::namespace;
use midspan_linux::netlink::Netlink;
use midspan_linux::process::{self, RunningProgram};
use midspan_linux::tcp;
use midspan_policy::congestion::BBR;
use midspan_policy::{LegStart, ReceiveWindow, SessionSettings, server_windows};
use midspan_relay::leg_options::{self, LegError};
use midspan_units::ByteSize;
use serde::{Deserialize, Serialize};

use super::{Context, Finding};
use crate::Error;
use crate::configuration::Configuration;

/// Time limit of the child process.
const LIMIT: Duration = Duration::from_secs(20);
/// `TCP_INFO` of Linux 5.4, which ends with the peer's window.
const INFORMATION_LENGTH: usize = 232;

/// A kernel that opens no window offers less than this, in bytes.
const KERNELS_WINDOW: u64 = 1 << 16;

/// The findings of the child process.
#[derive(Debug, Serialize, Deserialize)]
struct Tried {
    features: Vec<TriedFeature>,
    information_length: Option<usize>,
    repair: Result<(), String>,
    /// The largest receive window, in bytes, that is open from the first ACK on.
    receive_window: Result<u64, String>,
    /// Whether the kernel has BBR, or has loaded its module.
    bbr: Result<(), String>,
    /// Whether BPF programs can be attached to the control group.
    bpf: Result<(), String>,
    ipv6: bool,
}

/// One feature that interception uses.
#[derive(Debug, Serialize, Deserialize)]
struct TriedFeature {
    name: String,
    /// The finding, or why the feature cannot be used.
    found: Result<String, String>,
    /// What to do if it is missing.
    mend: String,
    is_needed: bool,
}

/// The child of [`check`](super::check): tries the kernel in a network namespace of its own, and
/// prints what it finds. Its argument is the configuration file. To be called while the process
/// has one thread.
///
/// # Errors
/// The file is wrong, or there are no namespaces for this user.
pub fn kernel_main(configuration: &std::path::Path) -> Result<(), Error> {
    let mut configuration = Configuration::load(configuration)?;
    crate::helper::leave_out_missing(&mut configuration)?;
    namespace::isolate().map_err(|error| {
        Error::system("try the kernel in a network namespace")(std::io::Error::other(error))
    })?;
    let _ = Netlink::open().map(|netlink| netlink.set_up("lo"));
    let is_transparent = configuration.transparent().next().is_some();
    let features = match is_transparent {
        true => features::features(&configuration.interception.numbers),
        false => Vec::new(),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let tried = Tried {
        features: features
            .into_iter()
            .map(|feature| TriedFeature {
                name: feature.name.to_owned(),
                found: feature.found,
                mend: feature.mend.to_owned(),
                is_needed: feature.is_needed,
            })
            .collect(),
        information_length: listener
            .and_then(|socket| Some(tcp::information(socket).ok()?.length())),
        repair: socket
            .and_then(tcp::try_repair)
            .map_err(|error| error.to_string()),
        receive_window: tcp::largest_open_window(server_windows::MOST)
            .map(ByteSize::bytes)
            .map_err(|error| error.to_string()),
        bbr: tcp::load_congestion_control(BBR).map_err(|error| error.to_string()),
        bpf: RaisingPlace::own()
            .and_then(|place| place.try_it())
            .map_err(|error| error.to_string()),
        ipv6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok(),
    };
    let text = serde_json::to_string(&tried)
        .map_err(|error| Error::system("write what was found")(error.into()))?;
    writeln!(std::io::stdout(), "{text}").map_err(Error::system("write what was found"))
}

pub(super) fn findings(context: &Context<'_>, arguments: &[String]) -> Vec<Finding> {
    let mut findings = match run_child(arguments) {
        Ok(tried) => describe(context, tried),
        Err(reason) => vec![Finding::warning(
            "kernel features",
            format!("not tried: {reason}"),
            "run as root",
        )],
    };
    findings.extend(legs(context));
    findings
}

fn run_child(arguments: &[String]) -> Result<Tried, String> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    process::end_with_parent_thread(&mut command);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (output, complaint) = (child.stdout.take(), child.stderr.take());
    let mut child = RunningProgram::new(child, Duration::ZERO);
    // The output is shorter than a pipe's buffer.
    let status = child
        .wait_for(LIMIT)
        .ok_or_else(|| format!("it took more than {} s", LIMIT.as_secs()))?;
    if !status.success() {
        return Err(read(complaint).trim().to_owned());
    }
    let output = read(output);
    serde_json::from_slice(output.as_bytes()).map_err(|error| error.to_string())
}

fn read(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(1 << 16).read_to_string(&mut text);
    }
    text
}

fn describe(context: &Context<'_>, tried: Tried) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tried
        .features
        .into_iter()
        .map(|feature| {
            let check = format!("kernel: {}", feature.name);
            match feature.found {
                Ok(found) => Finding::ok(check, found),
                Err(reason) if feature.is_needed => Finding::missing(check, reason, feature.mend),
                Err(reason) => Finding::warning(check, reason, feature.mend),
            }
        })
        .collect();
    let wants_ipv6 = context.configuration.listeners.iter().any(|listener| {
        listener.listen().is_some_and(|listen| listen.is_ipv6())
            || (listener.forward())
                .is_some_and(|f| f.to.addresses().iter().any(SocketAddr::is_ipv6))
            || listener.transparent().is_some_and(|t| t.ipv6)
    });
    if wants_ipv6 {
        findings.push(match tried.ipv6 {
            true => Finding::ok("kernel: IPv6", "there"),
            false => Finding::missing(
                "kernel: IPv6",
                "sockets of IPv6 cannot be made",
                "start the kernel without ipv6.disable=1, or use families = [\"ipv4\"]",
            ),
        });
    }
    findings.push(match tried.information_length {
        Some(length) if length >= INFORMATION_LENGTH => {
            Finding::ok("kernel: TCP_INFO", format!("{length} bytes"))
        }
        Some(length) => Finding::warning(
            "kernel: TCP_INFO",
            format!("{length} bytes: some figures of legs read as 0"),
            "a kernel from 5.4",
        ),
        None => Finding::missing("kernel: TCP_INFO", "cannot be read", "another kernel"),
    });
    findings.push(repair(context.configuration, tried.repair));
    findings.extend(receive_window(context.configuration, &tried.receive_window));
    findings.extend(bbr(context.configuration, tried.bbr));
    findings.extend(raising(context.configuration, tried.bpf));
    findings
}

/// BBR, if a policy may choose it. Without it, legs keep their congestion control.
fn bbr(configuration: &Configuration, tried: Result<(), String>) -> Option<Finding> {
    let check = "kernel: BBR";
    let mut sessions = configuration.listeners.iter().map(|of| &of.relay.session);
    sessions
        .any(SessionSettings::chooses_congestion_control)
        .then(|| match tried {
            Ok(()) => Finding::ok(check, "there; legs that lose packets change to it"),
            Err(reason) => Finding::warning(
                check,
                format!("{reason}: legs that lose packets keep their congestion control"),
                "run as root, or modprobe tcp_bbr, or a kernel with CONFIG_TCP_CONG_BBR",
            ),
        })
}

/// BPF, which raises the initial window of a client leg whose handshake shows that it is long. Without it, the window stays as it
/// was chosen at the SYN.
fn raising(configuration: &Configuration, tried: Result<(), String>) -> Option<Finding> {
    let mut listeners = configuration.transparent().map(|(of, _)| &of.relay.session);
    listeners.any(SessionSettings::sends_ahead).then(|| {
        let found = match tried {
            Ok(()) => "there; the handshake shows long legs".to_owned(),
            Err(reason) => {
                format!("{reason}; the first client of a network starts as on a short leg")
            }
        };
        Finding::ok("kernel: BPF", found)
    })
}

/// The receive window towards servers, if a listener offers more than the kernel does by itself. Without
/// it, downloads begin with the window of the kernel.
fn receive_window(configuration: &Configuration, tried: &Result<u64, String>) -> Option<Finding> {
    let check = "kernel: receive window";
    let sessions = || configuration.listeners.iter().map(|of| &of.relay.session);
    let written = sessions().filter_map(|session| match session.server.receive_window {
        Some(ReceiveWindow::Fixed(size)) => Some(size),
        Some(ReceiveWindow::Auto | ReceiveWindow::Off) | None => None,
    });
    let wanted = written.max();
    let is_automatic = sessions().any(SessionSettings::opens_windows);
    if wanted.is_none() && !is_automatic {
        return None;
    }
    // The kernel offers whole segments. Less than a KiB does not matter here.
    let whole = |bytes: u64| ByteSize::from_bytes(bytes >> 10 << 10);
    let kernels = "downloads begin with the kernel's window of 64 KB";
    Some(match (tried, wanted) {
        (Ok(open), Some(wanted)) if *open < KERNELS_WINDOW => Finding::warning(
            check,
            format!("receive_window = \"{wanted}\" has no effect: {kernels}"),
            "a kernel from 6.10",
        ),
        (Ok(open), Some(wanted)) if *open < wanted.min(server_windows::MOST).bytes() / 10 * 9 => {
            Finding::warning(
                check,
                format!("{} instead of receive_window = \"{wanted}\"", whole(*open)),
                format!(
                    "sysctl -w net.core.rmem_max={}, or run as root",
                    wanted.bytes()
                ),
            )
        }
        (Ok(open), None) if *open < KERNELS_WINDOW => {
            Finding::ok(check, format!("{kernels}, before Linux 6.10"))
        }
        (Ok(open), _) => Finding::ok(
            check,
            format!("up to {} from the first ACK on", whole(*open)),
        ),
        (Err(reason), _) => Finding::ok(check, format!("not tried: {reason}; {kernels}")),
    })
}

/// `TCP_REPAIR`, which changes the legs towards the clients of some profiles before their first
/// byte. Without it, these clients are served like all others.
fn repair(configuration: &Configuration, tried: Result<(), String>) -> Finding {
    let check = "kernel: TCP_REPAIR";
    let mut listeners = configuration.listeners.iter();
    let sends_ahead = listeners.any(|listener| listener.relay.session.sends_ahead());
    let mut profiles = configuration.profiles.iter();
    let needed_by = profiles.find(|profile| profile.needs_repair());
    match (tried, needed_by.map(|profile| &profile.name)) {
        (Ok(()), Some(profile)) => {
            Finding::ok(check, format!("there; profile \"{profile}\" needs it"))
        }
        (Ok(()), None) if sends_ahead => {
            Finding::ok(check, "there; data is sent ahead of windows on long legs")
        }
        (Ok(()), None) => Finding::ok(check, "there; this configuration does not need it"),
        (Err(reason), Some(profile)) => Finding::warning(
            check,
            format!(
                "{reason}: clients of profile \"{profile}\" get normal segments, and no data \
                 ahead of their window"
            ),
            "CAP_NET_ADMIN, and a kernel with CONFIG_CHECKPOINT_RESTORE",
        ),
        (Err(reason), None) if sends_ahead => Finding::ok(
            check,
            format!("{reason}: nothing is sent ahead of windows on long legs"),
        ),
        (Err(reason), None) => Finding::ok(
            check,
            format!("{reason}; this configuration does not need it"),
        ),
    }
}

/// Settings of legs: congestion controls, buffers, pacing.
fn legs(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (listener, leg, settings) in context.configuration.legs() {
        let leg = match leg {
            midspan_policy::Leg::Client => "client_leg",
            midspan_policy::Leg::Server => "server_leg",
        };
        let check = format!("{leg} of \"{}\"", listener.relay.name);
        let start = LegStart::from(settings);
        findings.push(match leg_options::check(&start) {
            Ok(()) => {
                let control = settings.congestion_control.as_deref();
                let mut found = format!("congestion control {}", control.unwrap_or("as it is"));
                if let Some(rate) = settings.pacing_rate {
                    found.push_str(&format!(", paced at {rate} (SO_MAX_PACING_RATE)"));
                }
                Finding::ok(check, found)
            }
            Err(error) => {
                let mend = mend_leg(&error);
                Finding::missing(check, error.to_string(), mend)
            }
        });
    }
    findings
}

fn mend_leg(error: &LegError) -> String {
    match error {
        LegError::UnknownCongestionControl { name, .. } => format!("modprobe tcp_{name}"),
        LegError::RestrictedCongestionControl { name, unrestricted } => format!(
            "sysctl -w net.ipv4.tcp_allowed_congestion_control='{} {name}'",
            unrestricted.replace(", ", " ")
        ),
        LegError::BufferTooLarge { sysctl, wanted, .. } => {
            format!("sysctl -w {sysctl}={}", wanted.bytes())
        }
        LegError::OutOfRange { key, .. }
        | LegError::NotSupported { key, .. }
        | LegError::Refused { key, .. } => format!("another value of {key} in the configuration"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::State;
    use midspan_document::Source;

    /// The finding for a configuration with this profile; `missing`: the kernel lacks the feature.
    fn finding(profile: &str, missing: bool) -> (State, String) {
        let text = format!(
            "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:1\"\nto = \"192.0.2.1:80\"\n\
             [profile.narrow]\nclients = [\"192.0.2.0/24\"]\n{profile}\n"
        );
        let configuration = Configuration::read(&Source::new("test", text)).unwrap();
        let tried = match missing {
            true => Err("Protocol not available".to_owned()),
            false => Ok(()),
        };
        let found = repair(&configuration, tried);
        assert_eq!(found.mend.is_some(), found.state != State::Ok);
        (found.state, found.found)
    }

    #[test]
    fn a_receive_window_is_checked_where_one_is_offered() {
        let finding = |leg: &str, tried: Result<u64, &str>| {
            let text = format!(
                "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:1\"\nto = \"192.0.2.1:80\"\n{leg}\n"
            );
            let configuration = Configuration::read(&Source::new("test", text)).unwrap();
            let tried = tried.map_err(str::to_owned);
            let finding = receive_window(&configuration, &tried)?;
            assert_eq!(finding.mend.is_some(), finding.state != State::Ok);
            Some((finding.state, finding.found))
        };
        assert_eq!(finding("", Ok(1 << 24)), None);
        let auto = "policy = \"auto\"";
        let written = "server_leg = { receive_window = \"3 MiB\" }";
        for (leg, tried, state, part) in [
            (auto, Ok(1 << 24), State::Ok, "up to 16 MiB"),
            (auto, Ok(65_535), State::Ok, "before Linux 6.10"),
            (auto, Err("Network is unreachable"), State::Ok, "not tried"),
            (written, Ok(3_100_000), State::Ok, "up to"),
            (written, Ok(212_992), State::Warning, "instead of"),
            (written, Ok(65_535), State::Warning, "has no effect"),
        ] {
            let (found, text) = finding(leg, tried).unwrap();
            assert_eq!(found, state, "{text}");
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_profiles_decide_whether_tcp_repair_is_needed() {
        for (profile, is_needed) in [
            ("downstream = \"10 Mbit/s\"", false),
            ("send_ahead = \"wso\"", false),
            ("send_ahead = \"1 MiB\"", true),
            ("oversized_segments = \"4420 B\"", true),
            ("oversized_segments = \"auto\"", true),
        ] {
            let (state, there) = finding(profile, false);
            assert_eq!(state, State::Ok);
            assert_eq!(there.contains("\"narrow\" needs it"), is_needed, "{there}");
            let (state, missing) = finding(profile, true);
            assert_eq!(state == State::Warning, is_needed, "{profile}: {missing}");
            assert!(missing.starts_with("Protocol not available"), "{missing}");
        }
    }
}
