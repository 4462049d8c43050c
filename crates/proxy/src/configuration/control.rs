//! `[control]`: where commands to the running proxy are taken.

use std::path::PathBuf;

use midspan_document::{Located, Source, Spanned};
use serde::Deserialize;

/// `[control]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ControlTable {
    socket: Option<Spanned<String>>,
}

/// Longest path of a Unix socket (`sun_path`), less the closing zero.
const PATH_LIMIT: usize = 107;

/// Where commands to the running proxy are taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ControlSocket {
    /// Where `midspan status` looks by itself; see [`default_socket`](crate::default_socket).
    #[default]
    Default,
    /// At this path.
    At(PathBuf),
    /// Nowhere.
    None,
}

impl ControlTable {
    pub fn checked(self, source: &Source) -> Result<ControlSocket, Located> {
        let Some(socket) = self.socket else {
            return Ok(ControlSocket::Default);
        };
        let place = socket.span();
        match socket.get_ref().as_str() {
            "none" => Ok(ControlSocket::None),
            path if path.starts_with('/') && path.len() <= PATH_LIMIT && !path.contains('\0') => {
                Ok(ControlSocket::At(socket.into_inner().into()))
            }
            _ => Err(Located::new(
                source,
                place,
                format!("a socket is a path from / on, of at most {PATH_LIMIT} bytes, or \"none\""),
            )),
        }
    }
}
