//! Waiting until addresses can be used.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;

use super::NetworkError;

/// `IFA_F_TENTATIVE` of `linux/if_addr.h`.
const TENTATIVE: u32 = 0x40;

/// Beyond this the next step shows what is wrong.
const LIMIT: Duration = Duration::from_secs(20);

/// Waits until no IPv6 address of these hosts is tentative any more: the kernel may take a second
/// to see that the other end of a link is up, and the address cannot be used before.
///
/// # Errors
/// The addresses cannot be read.
pub fn wait_until_usable<'a>(
    nodes: impl IntoIterator<Item = &'a NetworkNamespace>,
) -> Result<(), NetworkError> {
    for node in nodes {
        let usable = node.run(wait_here)?;
        usable.map_err(|source| NetworkError::Io {
            action: "read the addresses",
            node: node.name().to_owned(),
            source,
        })?;
    }
    Ok(())
}

fn wait_here() -> io::Result<()> {
    let begin = Instant::now();
    loop {
        // Address, index, prefix, scope, flags, name: proc_net(5).
        let text = match fs::read_to_string("/proc/thread-self/net/if_inet6") {
            Ok(text) => text,
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let flags = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(4));
        let mut flags = flags.filter_map(|flags| u32::from_str_radix(flags, 16).ok());
        if !flags.any(|flags| flags & TENTATIVE != 0) || begin.elapsed() > LIMIT {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
