//! The differentiated services code point of IP packets.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use thiserror::Error;

/// The class of service in an IP header: six bits, 0 to 63 (RFC 2474). The two ECN bits of the
/// same field are no part of it.
///
/// It is read from a number, or from the name of a standard class: `cs0` to `cs7` (RFC 2474), `af11`
/// to `af43` (RFC 2597), `ef` (RFC 3246), `voice-admit` (RFC 5865), `le` (RFC 8622). RFC 4594
/// describes which traffic belongs to which class. It is printed as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dscp(u8);

/// A text or a number that is no DSCP.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0} is no DSCP: write a number from 0 to 63, or the name of a class such as \"ef\", \"af41\", \
     \"cs1\", \"le\" or \"voice-admit\""
)]
pub struct DscpError(String);

/// The names, apart from those of the classes `csN` and `afNM`.
const NAMES: [(&str, u8); 3] = [("ef", 46), ("voice-admit", 44), ("le", 1)];

impl Dscp {
    /// The DSCP with this number.
    ///
    /// # Errors
    /// It is above 63.
    pub fn from_number(number: u64) -> Result<Self, DscpError> {
        let six_bits = u8::try_from(number).ok().filter(|number| *number < 64);
        six_bits
            .map(Self)
            .ok_or_else(|| DscpError(number.to_string()))
    }

    /// The number, 0 to 63.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The DSCP of an IP packet, from its first bytes; `None` if it is no IP packet.
    #[must_use]
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        let [first, second] = *packet.first_chunk()?;
        let field = match first >> 4 {
            4 => second,
            6 => first << 4 | second >> 4,
            _ => return None,
        };
        Some(Self(field >> 2))
    }

    /// The class selector N is the number 8 · N. Class N and drop precedence M of assured forwarding
    /// are 8 · N + 2 · M.
    fn from_name(name: &str) -> Option<u8> {
        let digit = |byte: u8, range: std::ops::RangeInclusive<u8>| {
            let digit = byte.checked_sub(b'0')?;
            range.contains(&digit).then_some(digit)
        };
        match *name.as_bytes() {
            [b'c', b's', selector] => Some(8 * digit(selector, 0..=7)?),
            [b'a', b'f', class, precedence] => {
                Some(8 * digit(class, 1..=4)? + 2 * digit(precedence, 1..=3)?)
            }
            _ => {
                let mut names = NAMES.iter();
                names
                    .find(|(known, _)| *known == name)
                    .map(|(_, number)| *number)
            }
        }
    }
}

impl FromStr for Dscp {
    type Err = DscpError;

    fn from_str(text: &str) -> Result<Self, DscpError> {
        let error = || DscpError(format!("\"{text}\""));
        if let Some(number) = Self::from_name(&text.to_ascii_lowercase()) {
            return Ok(Self(number));
        }
        let number = text.parse().map_err(|_| error())?;
        Self::from_number(number).map_err(|_| error())
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrNumber;
        impl Visitor<'_> for NameOrNumber {
            type Value = Dscp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a DSCP: a number from 0 to 63, or a name such as \"ef\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dscp, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Dscp, E> {
                Dscp::from_number(number).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Dscp, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(NameOrNumber)
    }
}

impl Serialize for Dscp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, I64Deserializer, StrDeserializer, U64Deserializer};

    use super::*;

    #[test]
    fn names_have_the_numbers_of_the_registry() {
        // https://www.iana.org/assignments/dscp-registry
        for (name, number) in [
            ("cs0", 0),
            ("cs1", 8),
            ("CS7", 56),
            ("af11", 10),
            ("AF13", 14),
            ("af41", 34),
            ("af43", 38),
            ("ef", 46),
            ("voice-admit", 44),
            ("le", 1),
            ("0", 0),
            ("63", 63),
        ] {
            let dscp: Dscp = name.parse().unwrap();
            assert_eq!(dscp.number(), number, "{name}");
            assert_eq!(dscp.to_string().parse(), Ok(dscp));
        }
        for wrong in [
            "", "cs8", "cs", "cs11", "af", "af01", "af51", "af14", "af10", "64", "-1", "1.5",
            "e f", "256", "ef ",
        ] {
            let error = wrong.parse::<Dscp>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("\"{wrong}\" is no DSCP")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_packet_of_either_family_has_one() {
        let of = |packet: &[u8]| Dscp::of_packet(packet).map(Dscp::number);
        // EF with both ECN bits; the flow label follows the traffic class of IPv6.
        assert_eq!(of(&[0x45, 46 << 2 | 3, 0, 40]), Some(46));
        assert_eq!(of(&[0x60 | 0xb, 0x8f, 0xff, 0xff]), Some(46));
        assert_eq!(of(&[0x45, 0]), Some(0));
        for nothing in [&[][..], &[0x45], &[0x35, 0xff], &[0xff, 0xff]] {
            assert_eq!(of(nothing), None);
        }
    }

    #[test]
    fn a_key_is_a_number_or_a_name() {
        let number = |number: i64| -> Result<Dscp, Error> {
            let from: I64Deserializer<Error> = number.into_deserializer();
            Dscp::deserialize(from)
        };
        assert_eq!(number(46).unwrap(), "ef".parse().unwrap());
        assert!(number(-1).unwrap_err().to_string().contains("0 to 63"));
        assert!(
            number(64)
                .unwrap_err()
                .to_string()
                .contains("64 is no DSCP")
        );
        let unsigned: U64Deserializer<Error> = 10_u64.into_deserializer();
        assert_eq!(Dscp::deserialize(unsigned).unwrap().number(), 10);
        let name: StrDeserializer<'_, Error> = "af41".into_deserializer();
        assert_eq!(Dscp::deserialize(name).unwrap().number(), 34);
    }
}
