//! An upgrade of a running proxy, until its end.

use std::path::Path;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::client::ClientError;

use super::{CommandError, Request, Status, UpgradeState, UpgradeStatus, ask};

const PAUSE: Duration = Duration::from_millis(100);

/// An upgrade did not begin, or its result is not known.
#[derive(Debug, Error)]
pub enum UpgradeError {
    /// The proxy does not answer.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The running program is too old.
    #[error("the running Midspan cannot execute another program: restart it")]
    TooOld,
    /// The proxy refuses.
    #[error("{0}")]
    Refused(String),
    /// It takes too long.
    #[error("the upgrade is not over after {} s: see `midspan status` and the log", .0.as_secs())]
    Late(Duration),
}

/// Upgrades the proxy at `socket` to the program with this absolute path, or to the file that it was started from. Waits,
/// at most for `limit`, until the upgrade has succeeded or failed; returns the state of the proxy and the result.
///
/// # Errors
/// See [`UpgradeError`]. An upgrade that has begun and failed is no error here.
pub fn upgrade(
    socket: &Path,
    program: Option<String>,
    limit: Duration,
) -> Result<(Status, UpgradeStatus), UpgradeError> {
    let before = match ask(socket, &Request::Status) {
        Ok(answer) => answer.status,
        // A program of a time when the control socket did not speak HTTP, or had other answers.
        Err(CommandError::Client(ClientError::Strange { .. }) | CommandError::Format { .. }) => {
            return Err(UpgradeError::TooOld);
        }
        Err(error) => return Err(error.into()),
    };
    let before = before.and_then(|status| status.upgrade);
    let before = before.map_or(0, |upgrade| upgrade.number);
    match ask(socket, &Request::Upgrade { program }) {
        Ok(answer) if answer.ok => {}
        Ok(answer) => return Err(UpgradeError::Refused(answer.error.unwrap_or_default())),
        Err(CommandError::Format { .. }) => return Err(UpgradeError::TooOld),
        // Perhaps the process has executed the program before the whole answer was sent.
        Err(CommandError::Client(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let until = Instant::now() + limit;
    loop {
        // While the process executes the program, it answers no request.
        let status = ask(socket, &Request::Status);
        if let Some(status) = status.ok().and_then(|answer| answer.status)
            && let Some(last) = status.upgrade.clone()
            && last.number > before
            && last.state != UpgradeState::Trying
        {
            return Ok((status, last));
        }
        if Instant::now() >= until {
            return Err(UpgradeError::Late(limit));
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The result with a program that answers each request with this text.
    fn upgrade_of(answer: &'static str) -> UpgradeError {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1000]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        upgrade(&path, None, Duration::from_secs(20)).unwrap_err()
    }

    #[test]
    fn an_old_program_is_to_be_restarted() {
        let lines = "{\"ok\":false,\"error\":\"not a request\"}\n";
        let page = "HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\nno such page\n";
        for answer in [lines, page] {
            assert!(matches!(upgrade_of(answer), UpgradeError::TooOld));
        }
    }

    #[test]
    fn a_program_that_is_gone_is_an_error() {
        let path = Path::new("/no/such/socket");
        let error = upgrade(path, None, Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, UpgradeError::Command(_)), "{error}");
    }
}
