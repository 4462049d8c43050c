//! A link between two hosts: a pair of virtual Ethernet interfaces (veth(4)).

use std::os::fd::AsFd;

use ipnet::IpNet;
use midspan_linux::ethtool;
use midspan_linux::namespace::NetworkNamespace;

use super::{Configure, NetworkError, ToPrefix, numbered};

/// One end of a link that is to be made.
pub struct End<'a> {
    node: &'a NetworkNamespace,
    name: String,
    addresses: Vec<Result<IpNet, NetworkError>>,
    link_address: Option<[u8; 6]>,
    mtu: Option<u32>,
    has_offloads: bool,
}

impl<'a> End<'a> {
    /// An interface of this host, without addresses.
    #[must_use]
    pub fn new(node: &'a NetworkNamespace, name: &str) -> Self {
        Self {
            node,
            name: name.to_owned(),
            addresses: Vec::new(),
            link_address: None,
            mtu: None,
            has_offloads: true,
        }
    }

    /// An interface with the addresses of host `host` on link `number` ([`numbered`]).
    #[must_use]
    pub fn numbered(node: &'a NetworkNamespace, name: &str, number: u8, host: u8) -> Self {
        let [four, six] = numbered(number, host);
        Self::new(node, name).address(four).address(six)
    }

    /// With a further address, such as `10.1.0.2/24`.
    #[must_use]
    pub fn address(mut self, address: impl ToPrefix) -> Self {
        self.addresses.push(address.to_prefix());
        self
    }

    /// With a link-layer address that is not left to the kernel.
    #[must_use]
    pub const fn link_address(mut self, address: [u8; 6]) -> Self {
        self.link_address = Some(address);
        self
    }

    /// With another size of the largest packet than 1500 bytes.
    #[must_use]
    pub const fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Without offloads: segments leave as they would on a real link, each by itself.
    #[must_use]
    pub const fn without_offloads(mut self) -> Self {
        self.has_offloads = false;
        self
    }

    fn set_up(&self) -> Result<(), NetworkError> {
        let (name, link_address, mtu) = (self.name.clone(), self.link_address, self.mtu);
        self.node.by_netlink(move |netlink| {
            if let Some(address) = link_address {
                netlink.set_link_address(&name, address)?;
            }
            if let Some(bytes) = mtu {
                netlink.set_mtu(&name, bytes)?;
            }
            netlink.set_up(&name)
        })?;
        if self.has_offloads {
            return Ok(());
        }
        let name = self.name.clone();
        let switched_off = self.node.run(move || ethtool::switch_off_offloads(&name))?;
        switched_off.map_err(|source| NetworkError::Io {
            action: "switch off the offloads of an interface",
            node: self.node.name().to_owned(),
            source,
        })
    }

    /// Gives the interface its addresses, and the host the link-layer address of the other end
    /// where that is fixed. An end without an address of a family needs no neighbour of that family:
    /// the kernel refuses it where the family is switched off.
    fn give_addresses(
        &self,
        own: &[IpNet],
        other: &Self,
        others: &[IpNet],
    ) -> Result<(), NetworkError> {
        let (name, own) = (self.name.clone(), own.to_vec());
        let mut others = others.to_vec();
        others.retain(|other| own.iter().any(|own| is_same_family(own, other)));
        let link_address = other.link_address;
        self.node.by_netlink(move |netlink| {
            for prefix in own {
                netlink.add_address(&name, prefix)?;
            }
            if let Some(link_address) = link_address {
                for other in others {
                    netlink.add_neighbour(&name, other.addr(), link_address)?;
                }
            }
            Ok(())
        })
    }
}

fn is_same_family(one: &IpNet, other: &IpNet) -> bool {
    one.addr().is_ipv4() == other.addr().is_ipv4()
}

/// A link that is to be made.
pub struct Link<'a> {
    ends: [End<'a>; 2],
}

impl<'a> Link<'a> {
    /// A link between these.
    #[must_use]
    pub const fn between(one: End<'a>, other: End<'a>) -> Self {
        Self { ends: [one, other] }
    }

    /// Makes the link. Both interfaces are up before they get addresses. If an end has a fixed
    /// link-layer address, the other host's table of neighbours contains this end from the start,
    /// for each address family that both ends have. Neither ARP nor neighbour discovery (RFC 4861)
    /// is then necessary.
    ///
    /// # Errors
    /// The kernel refuses a step, or a text is not an address.
    pub fn make(self) -> Result<(), NetworkError> {
        let [mut one, mut other] = self.ends;
        let addresses = [&mut one, &mut other]
            .map(|end| -> Result<Vec<IpNet>, NetworkError> { end.addresses.drain(..).collect() });
        let [own, others] = addresses;
        let (own, others) = (own?, others?);
        let namespace = other.node.as_fd().try_clone_to_owned();
        let namespace = namespace.map_err(|source| NetworkError::Io {
            action: "copy a descriptor",
            node: other.node.name().to_owned(),
            source,
        })?;
        let (name, peer) = (one.name.clone(), other.name.clone());
        one.node
            .by_netlink(move |netlink| netlink.add_veth_into(&name, &peer, namespace.as_fd()))?;
        one.set_up()?;
        other.set_up()?;
        one.give_addresses(&own, &other, &others)?;
        other.give_addresses(&others, &one, &own)
    }
}
