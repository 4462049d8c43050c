//! What is to be started, and how.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::{end_with_parent_thread, limit_open_files};

use super::running::{CONFIGURATION, Folder, LOG, with_control_socket, write_in_place};
use super::{AS, Finished, LaunchError, Program};

/// Mounts files over others, in a mount namespace of the program's own, and becomes the program.
/// Its arguments: how many files, then a file and a place for each, then the program's own.
const MOUNT_AND_RUN: &str = "count=$1; shift; while [ $count -gt 0 ]; do \
    mount --bind \"$1\" \"$2\" || exit 1; shift 2; count=$((count - 1)); done; exec \"$@\"";

/// A program that is to be started.
///
/// It is the leader of a process group of its own, as a service is, and is killed when the thread
/// that starts it (in a namespace: the namespace's) ends. Its standard input is empty. Its
/// standard error is its log.
pub struct Launch<'a> {
    /// `None`: this program.
    program: Option<OsString>,
    arguments: Vec<OsString>,
    namespace: Option<&'a NetworkNamespace>,
    configuration: Option<String>,
    has_own_control: bool,
    variables: Vec<(OsString, OsString)>,
    mounts: Vec<(PathBuf, PathBuf)>,
    has_output: bool,
    log: Option<Stdio>,
    folder: Option<PathBuf>,
    log_file: &'static str,
    open_files: Option<u64>,
    grace: Option<Duration>,
}

impl<'a> Launch<'a> {
    /// Any program.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self::of(Some(program.into()))
    }

    const fn of(program: Option<OsString>) -> Self {
        Self {
            program,
            arguments: Vec::new(),
            namespace: None,
            configuration: None,
            has_own_control: false,
            variables: Vec::new(),
            mounts: Vec::new(),
            has_output: true,
            log: None,
            folder: None,
            log_file: LOG,
            open_files: None,
            grace: None,
        }
    }

    /// This program once more, as one of its own commands: its `main` gets [`AS`] and the
    /// command's name as its first arguments.
    #[must_use]
    pub fn this_program(command: &str) -> Self {
        Self::of(None).args([AS, command])
    }

    /// `midspan run` of this build.
    #[must_use]
    pub fn midspan(program: impl AsRef<Path>) -> Self {
        Self::new(program.as_ref()).args(["run", "--ready-fd", "1", "--config"])
    }

    /// With a further argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// With further arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        for argument in arguments {
            self.arguments.push(argument.as_ref().to_owned());
        }
        self
    }

    /// With a configuration file, whose name becomes the last argument. A socket for commands in
    /// the program's folder is added at the end of the text, unless it has a `[control]` of its
    /// own.
    #[must_use]
    pub fn configuration(mut self, text: &str) -> Self {
        self.has_own_control = text.lines().any(|line| line.trim() == "[control]");
        self.configuration = Some(text.to_owned());
        self
    }

    /// In this namespace; else in that of the thread that starts it.
    #[must_use]
    pub const fn inside(mut self, namespace: &'a NetworkNamespace) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// With an environment variable.
    #[must_use]
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// With a file of its own in the place of one of the system: what reads `place` reads `file`.
    #[must_use]
    pub fn in_place_of(mut self, file: impl Into<PathBuf>, place: impl Into<PathBuf>) -> Self {
        self.mounts.push((file.into(), place.into()));
        self
    }

    /// With another place for standard error than a file; [`Program::log`] is then empty.
    #[must_use]
    pub fn log_to(mut self, log: impl Into<Stdio>) -> Self {
        self.log = Some(log.into());
        self
    }

    /// With a standard output that goes nowhere: for a program that is not to be waited for by it.
    #[must_use]
    pub const fn without_output(mut self) -> Self {
        self.has_output = false;
        self
    }

    /// With its configuration and log in a folder that stays, rather than in a temporary one.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// With another name of the log in its folder than `midspan.log`.
    #[must_use]
    pub const fn log_file(mut self, name: &'static str) -> Self {
        self.log_file = name;
        self
    }

    /// With a limit on the number of open descriptors.
    #[must_use]
    pub const fn open_files(mut self, limit: u64) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// Asked to end when its value goes, and killed if it still runs after this time. Without
    /// this call it is killed at once.
    #[must_use]
    pub const fn grace(mut self, time: Duration) -> Self {
        self.grace = Some(time);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// Its files cannot be written, or there is no such program.
    pub fn start(mut self) -> Result<Program, LaunchError> {
        let folder = Folder::new(self.folder.take())?;
        let name = self.name();
        let socket = (!self.has_own_control).then(|| folder.path().join("control"));
        if let Some(text) = self.configuration.take() {
            let file = folder.path().join(CONFIGURATION);
            write_in_place(&file, &with_control_socket(text, socket.as_deref()))?;
            self.arguments.push(file.into());
        }
        let path = folder.path().join(self.log_file);
        let log = match self.log.take() {
            Some(log) => log,
            None => File::create(&path)
                .map_err(LaunchError::file(&path))?
                .into(),
        };
        let mut command = self.command()?;
        command
            .stdin(Stdio::null())
            .stdout(match self.has_output {
                true => Stdio::piped(),
                false => Stdio::null(),
            })
            .stderr(log)
            .envs(self.variables)
            .process_group(0);
        if let Some(limit) = self.open_files {
            limit_open_files(&mut command, limit);
        }
        let child = match self.namespace {
            Some(namespace) => namespace.spawn(command)?,
            None => {
                end_with_parent_thread(&mut command);
                let action = "start a program";
                command.spawn().map_err(LaunchError::io(action))?
            }
        };
        Program::new(name, child, (folder, path), socket, self.grace)
    }

    /// Starts it, and waits until it is ready.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Program::until_ready`].
    pub fn ready(self) -> Result<Program, LaunchError> {
        let mut program = self.start()?;
        program.until_ready()?;
        Ok(program)
    }

    /// Starts it, and waits for its end.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Program::finish`].
    pub fn finish(self) -> Result<Finished, LaunchError> {
        self.start()?.finish()
    }

    /// For messages.
    fn name(&self) -> String {
        let words = self.program.iter().chain(&self.arguments);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    fn command(&self) -> Result<Command, LaunchError> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe()
                .map_err(LaunchError::io("find this program"))?
                .into(),
        };
        if self.mounts.is_empty() {
            let mut command = Command::new(program);
            command.args(&self.arguments);
            return Ok(command);
        }
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", MOUNT_AND_RUN, "sh"])
            .arg(self.mounts.len().to_string());
        for (file, place) in &self.mounts {
            command.arg(file).arg(place);
        }
        command.arg(program).args(&self.arguments);
        Ok(command)
    }
}
