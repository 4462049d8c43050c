//! The keys of nodes: Ed25519 (RFC 8032), as 32 bytes.

use std::sync::Arc;

use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use thiserror::Error;

/// Bytes of a private key and of a public key.
pub const KEY_LENGTH: usize = 32;

/// Before a private key in PKCS #8 (RFC 8410 §7).
const SECRET_HEADER: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Before a public key as a `SubjectPublicKeyInfo` (RFC 8410 §4).
const PUBLIC_HEADER: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The library refuses the private key.
    #[error("this is no private key for Ed25519")]
    NotUsable,
    /// The kernel gives no random bytes.
    #[error("the kernel provides no random bytes")]
    NoRandom,
}

/// A new private key, from the kernel's random bytes.
///
/// # Errors
/// [`KeyError::NoRandom`]
pub fn new_secret() -> Result<[u8; KEY_LENGTH], KeyError> {
    let mut secret = [0; KEY_LENGTH];
    crate::provider::fill_random(&mut secret).map_err(|_| KeyError::NoRandom)?;
    Ok(secret)
}

/// The public key that belongs to a private key.
///
/// # Errors
/// [`KeyError::NotUsable`]
pub fn public_key(secret: &[u8; KEY_LENGTH]) -> Result<[u8; KEY_LENGTH], KeyError> {
    let key = signing_key(secret)?;
    let info = key.public_key();
    let info = info.ok_or(KeyError::NotUsable)?;
    of_info(info.as_ref()).ok_or(KeyError::NotUsable)
}

fn signing_key(secret: &[u8; KEY_LENGTH]) -> Result<Arc<dyn SigningKey>, KeyError> {
    let document = [&SECRET_HEADER[..], secret].concat();
    any_eddsa_type(&PrivatePkcs8KeyDer::from(document)).map_err(|_| KeyError::NotUsable)
}

/// A private key, together with its public key as the other end receives it.
pub(crate) fn certified(secret: &[u8; KEY_LENGTH]) -> Result<Arc<CertifiedKey>, KeyError> {
    let key = signing_key(secret)?;
    let public = key.public_key().ok_or(KeyError::NotUsable)?;
    let shown = CertificateDer::from(public.as_ref().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![shown], key)))
}

/// The public key in a `SubjectPublicKeyInfo`; `None` if it is of another kind.
pub(crate) fn of_info(info: &[u8]) -> Option<[u8; KEY_LENGTH]> {
    info.strip_prefix(&PUBLIC_HEADER[..])?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032 §7.1, test 1.
    #[test]
    fn the_public_key_is_that_of_the_standard() {
        let secret = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(public_key(&secret), Ok(public));
    }

    #[test]
    fn new_keys_differ() {
        let [one, other] = [new_secret().unwrap(), new_secret().unwrap()];
        assert_ne!(one, other);
        assert_ne!(public_key(&one), public_key(&other));
    }

    #[test]
    fn other_kinds_of_keys_are_none() {
        assert_eq!(of_info(&[]), None);
        assert_eq!(of_info(&PUBLIC_HEADER), None);
        let long = [&PUBLIC_HEADER[..], &[0; KEY_LENGTH + 1]].concat();
        assert_eq!(of_info(&long), None);
        let mut other = [&PUBLIC_HEADER[..], &[0; KEY_LENGTH]].concat();
        assert_eq!(of_info(&other), Some([0; KEY_LENGTH]));
        // X25519.
        other[8] = 0x6e;
        assert_eq!(of_info(&other), None);
    }

    fn hex(text: &str) -> [u8; KEY_LENGTH] {
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        std::array::from_fn(byte)
    }
}
