//! Which process has a socket, as far as `/proc` shows it (proc(5)).

use std::fmt::{self, Display};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most processes that are checked.
const PROCESS_LIMIT: usize = 100_000;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its process id.
    pub process: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
}

impl Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.process)
    }
}

/// The process that listens at an address, or at all addresses with its port. `None` if no process
/// does, or if the process belongs to another user.
#[must_use]
pub fn of_listener(address: SocketAddr) -> Option<Owner> {
    let is_meant = |(local, inode): (SocketAddr, u64)| {
        let same = local.ip() == address.ip()
            || local.ip().is_unspecified()
            || address.ip().is_unspecified();
        (same && local.port() == address.port()).then_some(inode)
    };
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .find_map(|text| text.lines().filter_map(listener).find_map(is_meant))
        .and_then(of_inode)
}

/// The process with this id.
#[must_use]
pub fn of_process(process: u32) -> Option<Owner> {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(Owner {
        process,
        name: name.trim().to_owned(),
    })
}

fn of_inode(inode: u64) -> Option<Owner> {
    let target = format!("socket:[{inode}]");
    fs::read_dir("/proc")
        .ok()?
        .take(PROCESS_LIMIT)
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|process: &u32| holds(*process, &target))
        .and_then(of_process)
}

fn holds(process: u32, target: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    descriptors
        .filter_map(Result::ok)
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|link| link.as_os_str() == target)
}

/// A line of `/proc/net/tcp` or `/proc/net/tcp6`: the address of a listening socket, and its inode.
pub(crate) fn listener(line: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.to_ne_bytes()).into(),
        32 => {
            let mut bytes = [0; 16];
            for (place, word) in bytes.chunks_mut(4).zip(0..) {
                let word = address.get(word * 8..word * 8 + 8)?;
                place.copy_from_slice(&u32::from_str_radix(word, 16).ok()?.to_ne_bytes());
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTENING).then_some((SocketAddr::new(address, port), inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn this_process_is_found_by_its_socket() {
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("skipped: no such family: {address}");
                continue;
            };
            let mut address = listener.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip("127.0.0.1".parse().unwrap());
            }
            let owner = of_listener(address).unwrap();
            assert_eq!(owner.process, std::process::id());
            drop(listener);
        }
    }

    #[test]
    fn broken_lines_are_nothing() {
        for line in [
            "",
            "a",
            "0: 00:1 2 0A",
            "0: 0100007F:0050 0:0 01 0 0 0 0 0 7",
        ] {
            assert_eq!(listener(line), None, "{line}");
        }
        let line =
            "0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1";
        assert_eq!(listener(line), Some(("127.0.0.1:80".parse().unwrap(), 77)));
    }
}
