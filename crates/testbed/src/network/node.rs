//! A host or a router: a network namespace with its kernel parameters.

use std::path::Path;

use midspan_linux::namespace::NetworkNamespace;

use super::{Configure, NetworkError};

/// A host or router that is to be made.
///
/// Its loopback interface is up, and IPv6 addresses can be used at once, without the search for
/// duplicates that would delay them by a second.
#[derive(Debug, Clone)]
pub struct Node {
    name: String,
    parameters: Vec<(String, String)>,
}

impl Node {
    /// A host, which forwards no packets; `name` is for messages.
    ///
    /// A new namespace has some parameters of the machine's first one, so forwarding is set here
    /// in any case.
    #[must_use]
    pub fn host(name: &str) -> Self {
        Self::new(name, "0")
    }

    /// A router, which forwards packets of both families.
    #[must_use]
    pub fn router(name: &str) -> Self {
        Self::new(name, "1")
    }

    fn new(name: &str, forwarding: &str) -> Self {
        let node = Self {
            name: name.to_owned(),
            parameters: Vec::new(),
        };
        node.parameter("net/ipv4/ip_forward", forwarding)
            .parameter("net/ipv6/conf/all/forwarding", forwarding)
            .parameter("net/ipv6/conf/all/accept_dad", "0")
            .parameter("net/ipv6/conf/default/accept_dad", "0")
    }

    /// With a kernel parameter of its own, such as `net/ipv4/tcp_tw_reuse`.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With the strictest check of source addresses (`rp_filter`).
    #[must_use]
    pub fn strict_sources(self) -> Self {
        self.parameter("net/ipv4/conf/all/rp_filter", "1")
            .parameter("net/ipv4/conf/default/rp_filter", "1")
    }

    /// Without IPv6: its interfaces send nothing by themselves.
    #[must_use]
    pub fn without_ipv6(self) -> Self {
        self.parameter("net/ipv6/conf/all/disable_ipv6", "1")
            .parameter("net/ipv6/conf/default/disable_ipv6", "1")
    }

    /// Makes it.
    ///
    /// # Errors
    /// This user may make no namespaces, or the kernel lacks a parameter.
    pub fn make(self) -> Result<NetworkNamespace, NetworkError> {
        let node = NetworkNamespace::new(&self.name)?;
        // A kernel without IPv6 has none of its parameters.
        let has_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
        for (name, value) in &self.parameters {
            if !has_ipv6 && name.starts_with("net/ipv6/") {
                continue;
            }
            node.set_parameter(name, value)?;
        }
        node.set_up("lo")?;
        Ok(node)
    }
}
