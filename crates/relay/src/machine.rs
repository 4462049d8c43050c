//! Addresses of this machine, which the helper sends to the relay.
//!
//! The helper reads these addresses, and sends them at the start and whenever they change, because the relay
//! itself may not query the kernel. As long as the relay does not have them, every address is treated as one
//! of this machine's, so that the access rules protect all that they have to protect.
//!
//! For the same reason the helper sends the names of forward listeners whose server is the listener itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{PoisonError, RwLock};

use midspan_linux::own_addresses::{LIMIT, OwnAddresses, OwnPrefix};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

/// The state of this process.
static KNOWN: RwLock<Machine> = RwLock::new(Machine {
    own: None,
    looping: BTreeSet::new(),
});

/// Longest list of addresses in bytes.
const LIST_LIMIT: u64 = 128 * LIMIT as u64;

/// What the relay needs about the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// Addresses of this machine; `None` if they are unknown.
    pub own: Option<OwnAddresses>,
    /// Names of forward listeners whose server is the listener itself, by an address that did not
    /// belong to this machine when the listener was configured.
    pub looping: BTreeSet<String>,
}

/// One line of the list in memory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Line {
    Unknown,
    Own(IpAddr, u8, Option<u32>),
    Looping(String),
}

impl Machine {
    /// A file in memory with this content, to be sent to the relay.
    ///
    /// # Errors
    /// Those of memfd_create(2) and of writing.
    pub fn to_memory(&self) -> io::Result<OwnedFd> {
        let own = self.own.iter().flat_map(OwnAddresses::prefixes);
        let own = own.map(|of| Line::Own(of.address, of.length, of.interface));
        let looping = self.looping.iter().cloned().map(Line::Looping);
        let unknown = self.own.is_none().then_some(Line::Unknown);
        let lines: Vec<Line> = unknown.into_iter().chain(own).chain(looping).collect();
        let mut file = File::from(memfd_create("midspan-addresses", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(&lines)?)?;
        file.rewind()?;
        Ok(file.into())
    }

    /// Reads the file that the helper has sent.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn from_memory(file: OwnedFd) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::from(file).take(LIST_LIMIT).read_to_end(&mut bytes)?;
        let lines: Vec<Line> = serde_json::from_slice(&bytes)?;
        let is_known = !lines.iter().any(|line| matches!(line, Line::Unknown));
        let mut looping = BTreeSet::new();
        let mut own = Vec::new();
        for line in lines {
            match line {
                Line::Unknown => {}
                Line::Own(address, length, interface) => own.push(OwnPrefix {
                    address,
                    length,
                    interface,
                }),
                Line::Looping(name) => {
                    looping.insert(name);
                }
            }
        }
        Ok(Self {
            own: is_known.then(|| own.into_iter().collect()),
            looping,
        })
    }

    fn is_own(&self, address: SocketAddr) -> bool {
        self.own.as_ref().is_none_or(|own| own.contains(address))
    }
}

/// Sets the state of this process.
pub fn learn(machine: Machine) {
    *KNOWN.write().unwrap_or_else(PoisonError::into_inner) = machine;
}

/// Whether this address belongs to this machine, by the [state of this process](learn).
pub fn is_own(address: IpAddr) -> bool {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.is_own(SocketAddr::new(address, 0))
}

/// Whether the server of this forward listener is the listener itself, by the [state of this
/// process](learn).
pub fn is_looping(listener: &str) -> bool {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.looping.contains(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_arrives() {
        let own = OwnPrefix {
            address: "fe80::1".parse().unwrap(),
            length: 128,
            interface: Some(3),
        };
        let four = OwnPrefix {
            address: "192.0.2.0".parse().unwrap(),
            length: 24,
            interface: None,
        };
        let machine = Machine {
            own: Some([own, four].into_iter().collect()),
            looping: BTreeSet::from(["loop \"1\"".to_owned()]),
        };
        let read = Machine::from_memory(machine.to_memory().unwrap()).unwrap();
        assert_eq!(read, machine);
        assert!(read.is_own("192.0.2.9:1".parse().unwrap()));
        assert!(!read.is_own("192.0.3.9:1".parse().unwrap()));
    }

    #[test]
    fn what_is_not_known_is_own() {
        let machine = Machine::default();
        let read = Machine::from_memory(machine.to_memory().unwrap()).unwrap();
        assert_eq!(read, machine);
        assert!(read.is_own("203.0.113.9:1".parse().unwrap()));
        // This test's process has no state.
        assert!(is_own("203.0.113.9".parse().unwrap()));
        assert!(!is_looping("web"));
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, b"[{\"Own\":[\"192.0.2.1\",32").unwrap();
        assert!(Machine::from_memory(file).is_err());
    }
}
