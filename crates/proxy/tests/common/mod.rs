//! Common parts of the proxy's kernel tests: the test program is also the proxy; functions query
//! its pages and send commands.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub mod held_thread;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use midspan_proxy::client;
use midspan_proxy::command::{Answer, Request, Status, UpgradeError, UpgradeState, ask, upgrade};
use midspan_proxy::{RunOptions, relay_main, trial_main};
use midspan_testbed::kernel_tests::Command;
use midspan_testbed::program::AS;
pub use midspan_testbed::testing::exit_code;
use midspan_testbed::testing::{LIMIT, Midspan, wait_until};
use rustix::process::Signal;

/// The address of the admin listener of the tests' proxies.
pub const ADMIN: &str = "127.0.0.1:9464";

/// Keys of a small relay.
pub const RELAY: &str = "[relay]\nthreads = 2\npipe_size = \"64 KiB\"\npipe_memory = \"1 MiB\"\n";

/// The proxy, which a test starts, and its relay, which the proxy starts.
pub const COMMANDS: &[Command] = &[RUN_COMMAND, RELAY_COMMAND, TRIAL_COMMAND];

pub const RUN_COMMAND: Command = ("run", |arguments| exit_code(run(arguments[0])));
pub const RELAY_COMMAND: Command = ("relay", |_| exit_code(relay_main()));

pub const TRIAL_COMMAND: Command = ("upgrade-trial", |_| exit_code(trial_main()));

pub fn run(file: &str) -> Result<(), midspan_proxy::Error> {
    midspan_proxy::run(RunOptions {
        configuration: file.into(),
        relay_arguments: vec![AS.to_owned(), "relay".to_owned()],
        trial_arguments: vec![AS.to_owned(), "upgrade-trial".to_owned()],
        ready: Some(std::io::stdout().as_fd().try_clone_to_owned().unwrap()),
        log_level: None,
    })
}

/// What the proxy reports if `nft` takes longer than an answer waits for it.
const LATE: &str = "worked on for long";

/// Commands to a running proxy, and its log lines about sessions.
pub trait Control {
    /// Sends a request. On a slow machine, `nft` may take longer than an answer waits for it: then the request is
    /// repeated for some time.
    fn ask(&self, request: &Request) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = self.ask_once(request);
            let error = answer.error.as_deref().unwrap_or_default();
            if !error.contains(LATE) || begun.elapsed() > LIMIT {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sends a request once.
    fn ask_once(&self, request: &Request) -> Answer;

    fn status(&self) -> Status {
        self.ask(&Request::Status).status.unwrap()
    }

    /// Writes another configuration, sends the command to reload it, and returns the answer.
    fn reload(&self, text: &str) -> Answer;

    /// Writes another configuration, sends the signal to reload it, and waits until it is in force.
    fn reload_by_signal(&self, text: &str);

    /// Upgrades to a program, or to the same one, and returns the status when the upgrade has succeeded or failed.
    fn upgrade(&self, program: Option<&str>) -> Status;

    /// The log lines of sessions that have ended, if the log is in JSON.
    fn ended_sessions(&self) -> Vec<serde_json::Value>;
}

impl Control for Midspan {
    fn ask_once(&self, request: &Request) -> Answer {
        ask(&self.socket(), request).unwrap()
    }

    fn reload(&self, text: &str) -> Answer {
        self.write(text);
        self.ask(&Request::Reload)
    }

    fn reload_by_signal(&self, text: &str) {
        let before = self.status();
        self.write(text);
        self.signal(Signal::HUP);
        wait_until("reloaded", || {
            let now = self.status();
            now.reloads > before.reloads || now.reload_error != before.reload_error
        });
        let error = self.status().reload_error;
        assert!(error.is_none(), "{error:?}: {}", self.log());
    }

    fn upgrade(&self, program: Option<&str>) -> Status {
        let program = program.map(str::to_owned);
        let begun = Instant::now();
        loop {
            match upgrade(&self.socket(), program.clone(), LIMIT) {
                // As for other requests, on a slow machine.
                Err(UpgradeError::Refused(error))
                    if error.contains(LATE) && begun.elapsed() < LIMIT =>
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
                result => return result.unwrap().0,
            }
        }
    }

    fn ended_sessions(&self) -> Vec<serde_json::Value> {
        self.log()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|line: &serde_json::Value| line["message"] == "session ended")
            .collect()
    }
}

pub fn admin() -> SocketAddr {
    ADMIN.parse().unwrap()
}

/// A page of the proxy at [`ADMIN`].
pub fn get(page: &str) -> (u16, String) {
    client::get(admin(), page).unwrap()
}

/// The upgrade has succeeded.
pub fn assert_upgraded(status: &Status) {
    let last = status.upgrade.as_ref().unwrap();
    assert_eq!((last.state, &last.error), (UpgradeState::Done, &None));
}

/// The value of one line of the metrics.
pub fn metric(name_with_labels: &str) -> f64 {
    let (status, text) = get("/metrics");
    assert_eq!(status, 200);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name_with_labels)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {name_with_labels} in\n{text}"));
    line.parse().unwrap()
}
