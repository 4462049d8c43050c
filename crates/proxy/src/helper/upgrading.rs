//! Upgrade: this process executes another program, which takes over listeners, queue, rules, knowledge and live
//! sessions. `docs/upgrade.md` describes the order, and the consequences of an error at each step.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use midspan_gateway::initial_window::InitialWindows;
use tracing::{error, info, warn};

use super::guard::Guard;
use super::inheritance::{FORMAT, Inheritance};
use super::numbers_in_force::NumbersInForce;
use super::program_trial::Trial;
use super::supervision::Supervisor;
use super::upgrades::Tried;
use crate::Error;
use crate::command::{Answer, UpgradeState, UpgradeStatus};

/// How long the answer to the command may take, before the program is executed.
const ANSWER_TIME: Duration = Duration::from_millis(250);

/// How long the execution of a program waits for the end of work on the rules.
const RULES_LIMIT: Duration = Duration::from_secs(30);

/// The file of this program, also if another file has its path meanwhile.
const PRESENT: &str = "/proc/self/exe";

/// Most relays of former programs at a time.
const MOST_FORMER: usize = 8;

impl Supervisor {
    /// Begins an upgrade to a program; without one, to the file that this program was started from. The answer comes
    /// before its end: the status has the result.
    pub(super) fn begin_upgrade(&mut self, program: Option<&str>) -> Answer {
        let program = program.map_or_else(own_program, |program| Ok(PathBuf::from(program)));
        let program = program.and_then(|path| Ok((open_program(&path)?, path)));
        match self.begin_upgrade_to(program) {
            Ok(status) => Answer {
                ok: true,
                upgrade: Some(status),
                ..Answer::default()
            },
            Err(reason) => Answer::error(reason),
        }
    }

    /// If threads of the relay were stuck several times: begins an upgrade to this program, whose new relay gets the
    /// sessions.
    ///
    /// # Errors
    /// There can be no upgrade, so the relay was ended.
    pub(super) fn begin_renewal(&mut self) -> Result<(), Error> {
        let Some(thread) = self.upgrades.due.take() else {
            return Ok(());
        };
        if self.upgrades.are_under_way() || self.is_draining() || self.is_lame_duck() {
            return Ok(());
        }
        let present = File::open(PRESENT);
        let present = present.and_then(|file| Ok((file, own_program()?)));
        match self.begin_upgrade_to(present) {
            Ok(_) => {
                self.upgrades.renews = Some(thread);
                Ok(())
            }
            Err(reason) => {
                error!("no new process can take over: {reason}");
                self.end_for(thread)
            }
        }
    }

    /// Begins an upgrade to this program. Or returns the reason why not.
    fn begin_upgrade_to(
        &mut self,
        program: io::Result<(File, PathBuf)>,
    ) -> Result<UpgradeStatus, String> {
        if self.upgrades.are_under_way() {
            return Err("another upgrade is under way".to_owned());
        }
        if self.former.count() >= MOST_FORMER {
            return Err(
                "the sessions of earlier upgrades have not ended yet (relay.upgrade_timeout): try again later"
                    .to_owned(),
            );
        }
        let (file, path) =
            program.map_err(|error| format!("the program cannot be used: {error}"))?;
        let (trial, path) = self.try_program(file, path)?;
        // The new relay reads it when it starts.
        if let Err(error) = self.relay.save() {
            warn!("what was learned last may not be kept: {error}");
        }
        info!(program = %path.display(), "upgrade: trying the program");
        let status = UpgradeStatus {
            number: self.upgrades.number() + 1,
            state: UpgradeState::Trying,
            program: path.display().to_string(),
            former_version: env!("CARGO_PKG_VERSION").to_owned(),
            error: None,
        };
        self.upgrades.last = Some(status.clone());
        self.upgrades.trial = Some(trial);
        self.upgrades.renews = None;
        Ok(status)
    }

    fn try_program(&mut self, file: File, path: PathBuf) -> Result<(Trial, PathBuf), String> {
        let inheritance = self.inheritance(&path).map_err(|error| error.to_string())?;
        let trial = Trial::start(file, &self.trial_arguments, &inheritance);
        let trial =
            trial.map_err(|error| format!("{} cannot be tried: {error}", path.display()))?;
        Ok((trial, path))
    }

    /// If the trial has ended well, executes the program, and does not return.
    ///
    /// # Errors
    /// A renewal has failed, so the relay was ended.
    pub(super) fn handle_upgrade(&mut self, has_ended: bool, now: Instant) -> Result<(), Error> {
        let has_ended = |trial: &mut Trial| has_ended || now >= trial.until();
        if let Some(trial) = self.upgrades.trial.take_if(has_ended) {
            let answered = trial.begun() + ANSWER_TIME;
            match trial.finish() {
                Err(reason) => return self.fail_upgrade(&reason),
                Ok(program) => {
                    self.upgrades.tried = Some(Tried {
                        program,
                        answered,
                        until: now + RULES_LIMIT,
                    });
                }
            }
        }
        let Some(tried) = self.upgrades.tried.take() else {
            return Ok(());
        };
        // Draining may have begun meanwhile.
        if self.is_draining() || self.is_lame_duck() {
            return self.fail_upgrade("the proxy is about to end");
        }
        // Rules that are being worked on cannot be handed over. On a slow machine, this takes some seconds.
        let rules_are_free = (self.guard.as_mut()).map_or(Ok(true), Guard::is_free)?;
        if !rules_are_free && now < tried.until {
            self.upgrades.tried = Some(tried);
            return Ok(());
        }
        // A thread of this program sends the answer to the command.
        std::thread::sleep(tried.answered.saturating_duration_since(now));
        let reason = self.execute(&tried.program);
        self.fail_upgrade(&reason)
    }

    /// The present program continues. If it cannot, because of a stuck thread, the relay ends.
    fn fail_upgrade(&mut self, reason: &str) -> Result<(), Error> {
        self.upgrades.fail(reason);
        match self.upgrades.renews.take() {
            Some(thread) if !self.is_draining() && !self.is_lame_duck() => self.end_for(thread),
            _ => Ok(()),
        }
    }

    /// Executes the program; returns why it could not.
    fn execute(&mut self, program: &File) -> String {
        let path = self
            .upgrades
            .last
            .as_ref()
            .map(|last| PathBuf::from(&last.program));
        let inheritance = match self.inheritance(&path.unwrap_or_default()) {
            Ok(inheritance) => inheritance,
            Err(error) => return error.to_string(),
        };
        let present = match File::open(PRESENT) {
            Ok(present) => present,
            Err(error) => return format!("the present program cannot be kept open: {error}"),
        };
        let control = self
            .control_place
            .as_ref()
            .map(|place| place.socket.as_fd());
        let sockets = [control, self.admin.as_ref().map(AsFd::as_fd)];
        let relay = (present.as_fd(), self.relay.control());
        let former = self.former.connections();
        if let Some(control) = &mut self.control {
            control.end_former();
        }
        info!("upgrade: executing the program");
        let error = inheritance.execute(program.as_fd(), relay, former, sockets, || {
            match self.signals.is_to_end() {
                true => Err(io::Error::other("the proxy is about to end")),
                false => Ok(()),
            }
        });
        format!("the program cannot be executed: {error}")
    }

    /// What another program needs to continue.
    fn inheritance(&mut self, program: &Path) -> Result<Inheritance, Error> {
        let rules = self.guard.as_mut().map(Guard::adoptable).transpose()?;
        Ok(Inheritance {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program: program.to_owned(),
            upgrade: self.upgrades.number().max(1),
            failure: None,
            file: self.file.clone(),
            log_level: self.log_level,
            configuration: self.whole.text().to_owned(),
            numbers: Some(NumbersInForce::from(&self.configuration)),
            relay: self.relay.id(),
            former: self.former.list(Instant::now()),
            open: self.open.clone(),
            slots: self.slots.clone(),
            interfaces: self.interfaces.clone(),
            bypasses: self.bypasses.clone(),
            drained: self.drained.clone(),
            places: self.windows.as_ref().map(InitialWindows::places),
            rules,
            control: self.control_place.as_ref().map(|place| place.path.clone()),
            admin: self
                .admin
                .as_ref()
                .and(self.configuration.admin.as_ref())
                .map(|of| of.listen),
            uptime: self.ready_since.elapsed(),
            reloads: self.reloads,
            reloads_failed: self.reloads_failed,
        })
    }
}

/// The file of this program. If a package has replaced it, its path leads to the new program.
fn own_program() -> io::Result<PathBuf> {
    let path = fs::read_link(PRESENT)?;
    let text = path
        .to_str()
        .map(|text| text.trim_end_matches(" (deleted)").to_owned());
    Ok(text.map_or(path, PathBuf::from))
}

fn open_program(path: &Path) -> io::Result<File> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if !path.is_absolute() {
        let message = format!("{} is not an absolute path", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let metadata = fs::metadata(path).map_err(named)?;
    if !metadata.is_file() || metadata.mode() & 0o111 == 0 {
        let message = format!("{} is not a program", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    File::open(path).map_err(named)
}
