//! Hosts and routers as network namespaces, links between them, addresses and routes.
//!
//! ```no_run
//! use midspan_testbed::network::{Configure, End, Link, Node};
//!
//! # fn main() -> Result<(), midspan_testbed::network::NetworkError> {
//! let client = Node::host("client").make()?;
//! let gateway = Node::router("gateway").make()?;
//! Link::between(
//!     End::new(&client, "eth").address("10.1.0.2/24"),
//!     End::new(&gateway, "acc").address("10.1.0.1/24"),
//! )
//! .make()?;
//! client.add_route("0.0.0.0/0", Some("10.1.0.1"), "eth")?;
//! # Ok(())
//! # }
//! ```

mod configure;
mod link;
mod node;
mod usable;

use std::io;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use midspan_linux::namespace::NamespaceError;
use midspan_linux::netlink::{self, NetlinkError, PrefixError};
use midspan_linux::nftables::NftablesError;
use thiserror::Error;

pub use configure::Configure;
pub use link::{End, Link};
pub use node::Node;
pub use usable::wait_until_usable;

/// A network could not be built or changed.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// A namespace could not be made or used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel refused a change.
    #[error("at {node}: {source}")]
    Netlink {
        /// The host's name.
        node: String,
        /// The kernel's answer.
        source: Box<NetlinkError>,
    },
    /// Packet filter rules were refused.
    #[error("at {node}: {source}")]
    Rules {
        /// The host's name.
        node: String,
        /// What the kernel or `nft` answered.
        source: Box<NftablesError>,
    },
    /// A text is no address with the length of its prefix.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A text is no address.
    #[error("\"{text}\" is no IP address: {source}")]
    Address {
        /// The text.
        text: String,
        /// What is wrong with it.
        source: AddrParseError,
    },
    /// Something else failed.
    #[error("cannot {action} at {node}: {source}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The host's name.
        node: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The addresses of host `host` on link `number`, one of each family: `10.number.0.host/24` and
/// `fd00 + number::host/64`. Tests and suites with many links number their links so.
#[must_use]
pub fn numbered(number: u8, host: u8) -> [IpNet; 2] {
    let four = Ipv4Addr::new(10, number, 0, host);
    let six = Ipv6Addr::new(0xfd00 + u16::from(number), 0, 0, 0, 0, 0, 0, host.into());
    [
        Ipv4Net::new_assert(four, 24).into(),
        Ipv6Net::new_assert(six, 64).into(),
    ]
}

/// What may stand for an address with the length of its prefix: an [`IpNet`], or a text such as
/// `10.1.0.2/24`. Without a length the prefix is the address alone.
pub trait ToPrefix {
    /// The prefix.
    ///
    /// # Errors
    /// The text is none.
    fn to_prefix(&self) -> Result<IpNet, NetworkError>;
}

impl ToPrefix for IpNet {
    fn to_prefix(&self) -> Result<IpNet, NetworkError> {
        Ok(*self)
    }
}

impl ToPrefix for IpAddr {
    fn to_prefix(&self) -> Result<IpNet, NetworkError> {
        Ok(IpNet::from(*self))
    }
}

impl ToPrefix for str {
    fn to_prefix(&self) -> Result<IpNet, NetworkError> {
        Ok(netlink::prefix(self)?)
    }
}

impl ToPrefix for String {
    fn to_prefix(&self) -> Result<IpNet, NetworkError> {
        self.as_str().to_prefix()
    }
}

impl<T: ToPrefix + ?Sized> ToPrefix for &T {
    fn to_prefix(&self) -> Result<IpNet, NetworkError> {
        (**self).to_prefix()
    }
}

/// What may stand for an address: an [`IpAddr`], or a text.
pub trait ToAddress {
    /// The address.
    ///
    /// # Errors
    /// The text is none.
    fn to_address(&self) -> Result<IpAddr, NetworkError>;
}

impl ToAddress for IpAddr {
    fn to_address(&self) -> Result<IpAddr, NetworkError> {
        Ok(*self)
    }
}

impl ToAddress for &str {
    fn to_address(&self) -> Result<IpAddr, NetworkError> {
        self.parse().map_err(|source| NetworkError::Address {
            text: (*self).to_owned(),
            source,
        })
    }
}

impl ToAddress for String {
    fn to_address(&self) -> Result<IpAddr, NetworkError> {
        self.as_str().to_address()
    }
}
