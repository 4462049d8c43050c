//! Only one process at a time: a name that exists once per network namespace.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Takes an abstract socket name (unix(7)), which exists once per network namespace, as rules and
/// routing tables do, and goes with the process however that ends. `None` where it is taken.
pub(crate) fn claim(name: &str) -> Result<Option<OwnedFd>> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names with this beginning that processes of this thread's network namespace have taken,
/// without the beginning.
pub(crate) fn taken(beginning: &str) -> std::io::Result<Vec<String>> {
    let table = fs::read_to_string("/proc/thread-self/net/unix")?;
    // An abstract name is shown with "@" for its first byte.
    let names = table.lines().filter_map(|line| line.split_once(" @"));
    Ok(names
        .filter_map(|(_, name)| Some(name.strip_prefix(beginning)?.to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_seen_while_it_lasts() {
        let name = format!("midspan test {}", std::process::id());
        assert!(taken(&name).unwrap().is_empty());
        let held = claim(&name).unwrap().unwrap();
        assert!(claim(&name).unwrap().is_none());
        assert_eq!(taken(&name).unwrap(), [""]);
        drop(held);
        assert!(taken(&name).unwrap().is_empty());
    }
}
