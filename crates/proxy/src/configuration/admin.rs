//! `[admin]`: the admin listener.

use std::net::SocketAddr;
use std::ops::Range;

use midspan_document::{Located, Source, Spanned};
use serde::Deserialize;

use super::values::Address;

/// `[admin]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminTable {
    listen: Spanned<Address>,
    #[serde(default)]
    allow_remote: bool,
    names: Option<Spanned<Vec<String>>>,
}

/// Settings of the admin listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// Address and port.
    pub listen: SocketAddr,
    /// Whether hosts other than this one may send requests.
    pub allow_remote: bool,
    /// Host names that requests may contain, in addition to addresses and `localhost`.
    pub names: Vec<String>,
    /// The place of `listen` in the file.
    pub(super) place: Range<usize>,
}

impl AdminTable {
    pub(super) fn checked(self, source: &Source) -> Result<AdminSettings, Located> {
        let place = self.listen.span();
        let listen = self.listen.into_inner().0;
        if listen.port() == 0 {
            let message = "the admin listener needs a port other than 0";
            return Err(Located::new(source, place, message));
        }
        if !listen.ip().is_loopback() && !self.allow_remote {
            let message = format!(
                "{} is no loopback address: other hosts could see who talks to whom",
                listen.ip()
            );
            return Err(Located::new(source, place, message)
                .with_help("use 127.0.0.1 or [::1], or set allow_remote = true in [admin]"));
        }
        Ok(AdminSettings {
            listen,
            allow_remote: self.allow_remote,
            names: names(source, self.names)?,
            place,
        })
    }
}

/// Most names.
const NAME_LIMIT: usize = 32;
/// Longest name of a host (RFC 1035).
const NAME_LENGTH: usize = 253;

fn names(source: &Source, key: Option<Spanned<Vec<String>>>) -> Result<Vec<String>, Located> {
    let Some(key) = key else {
        return Ok(Vec::new());
    };
    let is_name = |name: &String| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !name.is_empty() && name.len() <= NAME_LENGTH && name.bytes().all(is_allowed)
    };
    if key.get_ref().len() > NAME_LIMIT || !key.get_ref().iter().all(is_name) {
        let message = format!(
            "names are at most {NAME_LIMIT} names of this host without a port, as in \
             [\"gw.example.net\"]"
        );
        return Err(Located::new(source, key.span(), message));
    }
    Ok(key.into_inner())
}
