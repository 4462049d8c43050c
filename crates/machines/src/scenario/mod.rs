//! Scenarios: Midspan as a service of systemd on a whole machine.

mod guide;
mod power;

use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::machine::{Broken, Done, Machine, Parts};
use crate::programs::Programs;

/// Functions that the scripts use.
const PRELUDE: &str = include_str!("prelude.sh");

/// The result of a command, or why it has none.
pub type Ended = Result<Done, Broken>;

/// A scenario with a machine of its own.
#[derive(Debug)]
pub struct Scenario {
    /// The name.
    pub name: &'static str,
    /// Further arguments of the kernel.
    pub kernel_arguments: &'static str,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// A script that runs in the machine.
    Script(&'static str),
    /// What is done with the machine from outside.
    Outside(Outside),
}

/// What is done from outside, and its source.
type Outside = (fn(&mut Session<'_>) -> Result<Ended, Error>, &'static str);

/// The cases of the conformance suite with one mode of Midspan: all modes together take too long for
/// one job.
macro_rules! conformance {
    ($mode:literal) => {
        script(
            concat!("conformance-", $mode),
            concat!("MODE=", $mode, "\n", include_str!("conformance.sh")),
        )
    };
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    outside("guide", (guide::follow, include_str!("guide.rs"))),
    script("packages", include_str!("packages.sh")),
    script("gateway", include_str!("gateway.sh")),
    script("watchdog", include_str!("watchdog.sh")),
    outside(
        "power-cut-while-reloading",
        (power::while_reloading, include_str!("power.rs")),
    ),
    outside(
        "power-cut-while-writing",
        (power::while_writing, include_str!("power.rs")),
    ),
    Scenario {
        kernel_arguments: "ipv6.disable=1",
        ..script("without-ipv6", include_str!("without_ipv6.sh"))
    },
    script("vrf", include_str!("vrf.sh")),
    script("clock", include_str!("clock.sh")),
    script("memory", include_str!("memory.sh")),
    script("disciplines", include_str!("disciplines.sh")),
    script("wireguard", include_str!("wireguard.sh")),
    conformance!("forward"),
    conformance!("transparent"),
    conformance!("early"),
    conformance!("socks5"),
    conformance!("http"),
    conformance!("proxy-protocol"),
];

const fn script(name: &'static str, text: &'static str) -> Scenario {
    Scenario {
        name,
        kernel_arguments: "",
        work: Work::Script(text),
    }
}

const fn outside(name: &'static str, work: Outside) -> Scenario {
    Scenario {
        name,
        kernel_arguments: "",
        work: Work::Outside(work),
    }
}

/// A machine that can lose its power and start again, and the scripts' functions.
#[derive(Debug)]
pub struct Session<'a> {
    machine: Option<Machine>,
    parts: Parts<'a>,
    programs: &'a Programs,
    until: Instant,
}

impl Session<'_> {
    /// Runs a script in the machine, with the functions of all scripts.
    pub fn run(&mut self, script: &str) -> Result<Ended, Error> {
        let command = self.with_prelude(script);
        self.type_in(&command)
    }

    /// Runs a command as an administrator's shell does, without any function.
    pub fn type_in(&mut self, command: &str) -> Result<Ended, Error> {
        // systemctl waits 90 s for systemd by default, and on a slow machine systemd takes
        // longer to read all units again.
        let command = format!("export SYSTEMD_BUS_TIMEOUT=15min\n{command}");
        let until = self.until;
        let machine = self.machine()?;
        Ok(machine.run(&command, until.saturating_duration_since(Instant::now())))
    }

    /// Begins a script, and waits for the first line that it prints, not for its end.
    pub fn begin(&mut self, script: &str) -> Result<Result<(), Broken>, Error> {
        let command = self.with_prelude(script);
        let until = self.until;
        let machine = self.machine()?;
        Ok(machine.run_until_first_line(&command, until.saturating_duration_since(Instant::now())))
    }

    /// Ends the machine as without power. The next use starts it with what its disk has.
    pub fn cut_power(&mut self) {
        if let Some(machine) = self.machine.take() {
            machine.cut_power();
        }
    }

    /// The kernel's release.
    pub fn kernel(&mut self) -> Result<String, Error> {
        Ok(self.machine()?.kernel.clone())
    }

    fn machine(&mut self) -> Result<&mut Machine, Error> {
        let machine = match self.machine.take() {
            Some(running) => running,
            None => {
                let left = self.until.saturating_duration_since(Instant::now());
                Machine::start(&self.parts, left)?
            }
        };
        Ok(self.machine.insert(machine))
    }

    fn with_prelude(&self, script: &str) -> String {
        format!(
            "WORKSPACE='{}'\n{PRELUDE}\n{script}",
            self.programs.workspace.display()
        )
    }
}

impl Scenario {
    /// A new machine for it, whose commands together may take as long as `limit`.
    pub fn session<'a>(
        &self,
        parts: &Parts<'a>,
        programs: &'a Programs,
        limit: Duration,
    ) -> Result<Session<'a>, Error> {
        let parts = Parts {
            kernel_arguments: self.kernel_arguments,
            ..parts.clone()
        };
        Ok(Session {
            until: Instant::now() + limit,
            machine: Some(Machine::new(&parts, limit)?),
            parts,
            programs,
        })
    }

    /// Plays it.
    pub fn play(&self, session: &mut Session<'_>) -> Result<Ended, Error> {
        match self.work {
            Work::Script(text) => session.run(text),
            Work::Outside((work, _)) => work(session),
        }
    }

    /// A name for its state: another scenario, or a changed one, has another.
    pub fn state(&self) -> String {
        let (Work::Script(source) | Work::Outside((_, source))) = self.work;
        let texts = [PRELUDE, source, self.kernel_arguments].join("\0");
        format!("{:x}", Sha256::digest(texts))
    }
}
