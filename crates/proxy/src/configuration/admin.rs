//! `[admin]`: where Midspan tells about itself.

use std::net::SocketAddr;
use std::ops::Range;

use midspan_document::{Located, Source, Spanned};
use serde::Deserialize;

use super::file::Address;

/// `[admin]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminTable {
    listen: Spanned<Address>,
    #[serde(default)]
    allow_remote: bool,
}

/// Where metrics and sessions can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// Address and port.
    pub listen: SocketAddr,
    /// Hosts other than this one may ask.
    pub allow_remote: bool,
    /// Where `listen` stands in the file.
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
            place,
        })
    }
}
