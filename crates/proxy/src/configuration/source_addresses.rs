//! The key `source` of a listener: the addresses from which its server legs connect.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use midspan_document::{Located, Source, Spanned};
use midspan_relay::SourceAddresses;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::Mode;

/// Most addresses of one listener.
const LIMIT: usize = 64;

/// The value of the key.
#[derive(Debug)]
pub(super) enum SourceKey {
    /// The kernel chooses an address of this machine.
    Own,
    /// The address of the client.
    Client,
    /// These addresses of this machine.
    Addresses(Vec<Spanned<OwnAddress>>),
}

impl<'de> Deserialize<'de> for SourceKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SourceVisitor;

        impl<'de> Visitor<'de> for SourceVisitor {
            type Value = SourceKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of addresses as in [\"192.0.2.1\"], \"own\" or \"client\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SourceKey, E> {
                match text {
                    "own" => Ok(SourceKey::Own),
                    "client" => Ok(SourceKey::Client),
                    _ => Err(E::custom(format_args!(
                        "\"{text}\" is no source: write a list of addresses as in [\"192.0.2.1\"], \"own\" or \
                         \"client\""
                    ))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<SourceKey, A::Error> {
                let mut addresses = Vec::new();
                while let Some(address) = list.next_element::<Spanned<OwnAddress>>()? {
                    addresses.push(address);
                }
                Ok(SourceKey::Addresses(addresses))
            }
        }

        deserializer.deserialize_any(SourceVisitor)
    }
}

/// An address of this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnAddress(IpAddr);

impl<'de> Deserialize<'de> for OwnAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse() {
            Ok(IpAddr::V6(six)) if six.to_ipv4_mapped().is_some() => {
                Err(de::Error::custom(format_args!(
                    "\"{text}\" is an IPv4 address inside an IPv6 one: write it as an IPv4 address"
                )))
            }
            Ok(address) => Ok(Self(address)),
            Err(_) => Err(de::Error::custom(format_args!(
                "\"{text}\" is not an address: write \"192.0.2.1\" or \"2001:db8::1\", without a port"
            ))),
        }
    }
}

/// The addresses of a listener of this mode.
pub(super) fn source_addresses(
    source: &Source,
    addresses: Option<Spanned<SourceKey>>,
    mode: &Mode,
) -> Result<SourceAddresses, Located> {
    let Some(addresses) = addresses else {
        return Ok(SourceAddresses::default());
    };
    let all = addresses.span();
    let wrong = |place, message: String| Err(Located::new(source, place, message));
    if let Mode::Transparent(_) = mode {
        let message = "`source` is not for listeners of mode \"transparent\": their server legs have the \
                       addresses of the clients";
        return wrong(all, message.to_owned());
    }
    let addresses = match (addresses.into_inner(), mode) {
        (SourceKey::Addresses(addresses), _) => addresses,
        (SourceKey::Own, _) => return Ok(SourceAddresses::default()),
        (SourceKey::Client, Mode::Explicit(explicit)) if explicit.mode == "hop" => {
            return Ok(SourceAddresses::default());
        }
        (SourceKey::Client, _) => {
            let message = "`source = \"client\"` is for listeners of mode \"hop\"";
            return wrong(all, message.to_owned());
        }
    };
    if addresses.is_empty() || addresses.len() > LIMIT {
        let message = format!("source lists 1 to {LIMIT} addresses of this machine");
        return wrong(all, message);
    }
    let mut seen = BTreeSet::new();
    for address in addresses {
        let place = address.span();
        let OwnAddress(ip) = address.into_inner();
        let is_broadcast = matches!(ip, IpAddr::V4(four) if four.is_broadcast());
        if ip.is_unspecified() || ip.is_multicast() || is_broadcast {
            return wrong(place, format!("{ip} is not the address of one host"));
        }
        if !seen.insert(ip) {
            return wrong(place, format!("{ip} is listed twice"));
        }
    }
    let servers = match mode {
        Mode::Forward(forward) => forward.to.addresses(),
        Mode::Explicit(_) | Mode::Transparent(_) => Vec::new(),
    };
    let fits = |server: &SocketAddr| seen.iter().any(|ip| ip.is_ipv4() == server.is_ipv4());
    if let Mode::Forward(forward) = mode
        && !forward.to.has_names()
        && !servers.iter().any(fits)
    {
        let message = format!(
            "none of these addresses has the IP version of {}",
            forward.to
        );
        return wrong(all, message);
    }
    Ok(SourceAddresses(seen.into_iter().collect()))
}
