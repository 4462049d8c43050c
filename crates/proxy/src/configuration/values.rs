//! Values of keys that several tables have.

use std::fmt;
use std::net::SocketAddr;

use midspan_document::{Located, Source, Spanned};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// An address with a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address(pub(super) SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AddressVisitor;

        impl Visitor<'_> for AddressVisitor {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address with a port in quotes, as in \"192.0.2.1:80\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Address, E> {
                text.parse().map(Address).map_err(|_| {
                    E::custom(format_args!(
                        "\"{text}\" is not an address with a port: write \"192.0.2.1:80\" or \
                         \"[2001:db8::1]:80\"; names are not looked up"
                    ))
                })
            }
        }

        deserializer.deserialize_str(AddressVisitor)
    }
}

/// The value, or its default; an error at its place where it is outside `range`.
pub(super) fn within<T: PartialOrd + fmt::Display>(
    source: &Source,
    key: &str,
    value: Option<Spanned<T>>,
    default: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<T, Located> {
    let Some(value) = value else {
        return Ok(default);
    };
    if range.contains(value.get_ref()) {
        return Ok(value.into_inner());
    }
    let message = format!(
        "{key} lies between {} and {}, not {}",
        range.start(),
        range.end(),
        value.get_ref()
    );
    Err(Located::new(source, value.span(), message))
}
