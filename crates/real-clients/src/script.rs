//! Shell scripts in namespaces, with a time limit.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::RunningProgram;

use crate::Error;
use crate::needed::PATH;

/// The functions that all scripts may use.
const PRELUDE: &str = include_str!("prelude.sh");

/// Hides the machine's `/run`, unless it contains the temporary folders.
const OWN_RUN: &str = "case $DIR in /run/*) ;; *) mount -t tmpfs tmpfs /run ;; esac";

/// Names and values for a script.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// A running script, with its output in files.
pub(crate) struct Script {
    program: RunningProgram,
    output: PathBuf,
    errors: PathBuf,
}

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The script ended by itself with this status (for a signal: 128 plus its number).
    By(i32),
    /// The script was killed because it ran too long.
    TooLong,
}

impl Script {
    /// Starts a script in a network namespace, with `folder` as working directory and home.
    ///
    /// The script gets a process namespace, a mount namespace and a `/run` of its own. All
    /// processes that it starts end with it, daemons as well.
    pub(crate) fn start(
        place: &NetworkNamespace,
        role: &str,
        text: &str,
        variables: &Variables,
        folder: &Path,
    ) -> Result<Self, Error> {
        let [file, output, errors] =
            ["sh", "out", "err"].map(|kind| folder.join(format!("{role}.{kind}")));
        let text = format!("{PRELUDE}\n{OWN_RUN}\n{text}\n");
        fs::write(&file, text).map_err(Error::file(&file))?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child=KILL"])
            .args(["bash", "-euo", "pipefail"])
            .arg(&file)
            .env_clear()
            .env("PATH", PATH)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("HOME", folder)
            .envs(variables.iter().map(|(name, value)| (*name, value)))
            .current_dir(folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(File::create(&output).map_err(Error::file(&output))?)
            .stderr(File::create(&errors).map_err(Error::file(&errors))?);
        let child = place.spawn(command)?;
        Ok(Self {
            program: RunningProgram::new(child, Duration::ZERO),
            output,
            errors,
        })
    }

    /// Waits for the script's end, at most for `limit`. Then kills the script and all processes
    /// that it has started.
    pub(crate) fn finish(&mut self, limit: Duration) -> Ended {
        use std::os::unix::process::ExitStatusExt;
        match self.program.wait_for(limit) {
            Some(status) => Ended::By(match (status.code(), status.signal()) {
                (Some(code), _) => code,
                (None, Some(signal)) => 128 + signal,
                (None, None) => -1,
            }),
            None => {
                self.program.kill_group();
                self.program.wait_for(Duration::from_secs(10));
                Ended::TooLong
            }
        }
    }

    /// Whether the script has already ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.program.wait_for(Duration::ZERO).is_some()
    }

    /// The script's standard output.
    pub(crate) fn output(&self) -> String {
        read(&self.output)
    }

    /// The end of the script's standard error.
    pub(crate) fn errors(&self) -> String {
        tail(&read(&self.errors), LONGEST_ERRORS)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.program.kill_group();
        self.program.wait_for(Duration::from_secs(10));
    }
}

/// Most of standard error that is shown, in characters.
const LONGEST_ERRORS: usize = 3000;

/// Most of standard output that is read.
const LONGEST_OUTPUT: u64 = 1 << 20;

/// A file's text; invalid UTF-8 is replaced, because programs may print any bytes.
fn read(path: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // If reading fails, the bytes read so far are shown.
        let _ = file.take(LONGEST_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last characters of a text.
pub(crate) fn tail(text: &str, most: usize) -> String {
    let skipped = text.chars().count().saturating_sub(most);
    text.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn the_end_of_a_text() {
        assert_eq!(tail("abc", 2), "bc");
        assert_eq!(tail("äöü", 2), "öü");
        assert_eq!(tail("abc", 9), "abc");
    }
}
