//! Who else could reach what is Midspan's: the relay's user, the passwords in the file.

use std::path::Path;

use rustix::process::geteuid;

use super::{Context, Finding};
use crate::configuration::passwords;
use midspan_service::user::User;

pub(super) fn findings(context: &Context<'_>, file: &Path) -> Vec<Finding> {
    relay_user(context)
        .into_iter()
        .chain(mode(context, file))
        .collect()
}

/// `None` where the relay stays the user that starts it.
fn relay_user(context: &Context<'_>) -> Option<Finding> {
    if !geteuid().is_root() {
        return None;
    }
    let check = "relay's user";
    let name = context.configuration.relay.user.as_deref();
    Some(match User::find(name) {
        Err(error) => Finding::missing(
            check,
            format!("the users of this machine cannot be read: {error}"),
            "see /etc/nsswitch.conf and the services that it names",
        ),
        Ok(None) => Finding::missing(
            check,
            format!(
                "there is no user {}, or it is root",
                name.unwrap_or("nobody")
            ),
            "name another one in relay.user",
        ),
        Ok(Some(user)) if user.is_shared() => Finding::warning(
            check,
            "nobody: its other processes can end the relay, and with it all sessions",
            "install deploy/midspan.sysusers as /usr/lib/sysusers.d/midspan.conf and run \
             systemd-sysusers, or: useradd --system --shell /usr/sbin/nologin midspan",
        ),
        Ok(Some(user)) => Finding::ok(check, user.to_string()),
    })
}

/// `None` where the file holds no password.
fn mode(context: &Context<'_>, file: &Path) -> Option<Finding> {
    if !passwords::has_any(context.configuration) {
        return None;
    }
    let check = "file's mode";
    Some(match passwords::readers(file) {
        None => Finding::ok(check, "other users cannot read the passwords"),
        Some(mode) => Finding::warning(
            check,
            format!("mode {mode:03o}: every user of this machine can read the passwords"),
            format!("chmod 600 {}", file.display()),
        ),
    })
}
