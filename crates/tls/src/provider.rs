//! The algorithms: X25519, Ed25519, and AES-128-GCM or ChaCha20-Poly1305. Nothing else is built into the program.

use std::sync::{Arc, LazyLock};

use rustix::rand::{GetRandomFlags, getrandom};
use rustls::crypto::ring::{cipher_suite, kx_group};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use rustls::{Error, SignatureScheme};
use webpki::ring::ED25519;

/// Which signatures are checked.
pub static SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[ED25519],
    mapping: &[(SignatureScheme::ED25519, &[ED25519])],
};

/// The algorithms of all connections.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            kx_groups: vec![kx_group::X25519],
            signature_verification_algorithms: SIGNATURES,
            secure_random: &KernelRandom,
            key_provider: &NoKeyFiles,
        })
    });
    Arc::clone(&PROVIDER)
}

/// Fills the bytes with random ones of the kernel (`getrandom(2)`).
pub fn fill_random(bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(GetRandomFailed),
        }
    }
    Ok(())
}

#[derive(Debug)]
struct KernelRandom;

impl SecureRandom for KernelRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        fill_random(bytes)
    }
}

/// Keys are never read from documents of other programs.
#[derive(Debug)]
struct NoKeyFiles;

impl KeyProvider for NoKeyFiles {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("keys of other programs are not read".into()))
    }
}
