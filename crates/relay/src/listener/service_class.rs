//! The service class of a listener's sessions.

use std::fmt;

use midspan_units::Dscp;
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde::ser::{Serialize, Serializer};

const CLIENT: &str = "client";

/// The DSCP of the packets that Midspan sends on both legs of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceClass {
    /// That of the client's SYN, as on a path without Midspan.
    #[default]
    Client,
    /// Always this one.
    Fixed(Dscp),
}

impl ServiceClass {
    /// The class of a session whose client's SYN has this one.
    #[must_use]
    pub const fn of(self, client: Dscp) -> Dscp {
        match self {
            Self::Client => client,
            Self::Fixed(dscp) => dscp,
        }
    }
}

impl fmt::Display for ServiceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str(CLIENT),
            Self::Fixed(dscp) => dscp.fmt(f),
        }
    }
}

impl Serialize for ServiceClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Client => serializer.serialize_str(CLIENT),
            Self::Fixed(dscp) => dscp.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ServiceClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClientOrFixed;
        impl Visitor<'_> for ClientOrFixed {
            type Value = ServiceClass;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"client\", or a DSCP: a number from 0 to 63, or a name such as \"ef\"",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ServiceClass, E> {
                match text {
                    CLIENT => Ok(ServiceClass::Client),
                    text => Dscp::deserialize(text.into_deserializer()).map(ServiceClass::Fixed),
                }
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<ServiceClass, E> {
                Dscp::deserialize(number.into_deserializer()).map(ServiceClass::Fixed)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<ServiceClass, E> {
                Dscp::deserialize(number.into_deserializer()).map(ServiceClass::Fixed)
            }
        }
        deserializer.deserialize_any(ClientOrFixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_client_s_or_a_dscp() {
        let ef = ServiceClass::Fixed("ef".parse().unwrap());
        for (text, class) in [
            ("\"client\"", ServiceClass::Client),
            ("\"ef\"", ef),
            ("46", ef),
        ] {
            let read: ServiceClass = serde_json::from_str(text).unwrap();
            assert_eq!(read, class, "{text}");
            let written = serde_json::to_string(&class).unwrap();
            assert_eq!(
                serde_json::from_str::<ServiceClass>(&written).unwrap(),
                class
            );
        }
        for wrong in ["64", "-1", "\"Client\"", "true"] {
            let error = serde_json::from_str::<ServiceClass>(wrong).unwrap_err();
            assert!(error.to_string().contains("DSCP"), "{error}");
        }
    }
}
