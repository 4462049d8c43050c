//! Fragments IP packets: IPv4 (RFC 791 §3.2), and IPv6 (RFC 8200 §4.5). The kernel does not fragment TCP
//! segments over IPv6.
//!
//! [`Fragmenter::fragment`] takes one whole packet and passes on its fragments. Every field of a
//! packet is checked before it is used; a packet that cannot be fragmented is refused with a reason
//! and counted ([`Counters`]). [`Identifications`] assigns identifications, which are unique for
//! each pair of addresses for as long as a receiver may keep a fragment.
//!
//! Pure: no clock, no I/O. Memory is bounded by the limit of address pairs and one buffer for a
//! fragment.

mod cut;
mod identification;

pub use cut::{LEAST_MTU, Refused};
pub use identification::{Identifications, Pair};

use midspan_units::Time;

/// The counters of a fragmenter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that were fragmented.
    pub cut: u64,
    /// The fragments of these packets.
    pub fragments: u64,
    /// Packets that fitted and were passed on whole.
    pub whole: u64,
    /// Packets refused because they are malformed.
    pub malformed: u64,
    /// Packets refused because they must not be fragmented, or cannot be.
    pub uncuttable: u64,
    /// Packets refused because no identification was free.
    pub exhausted: u64,
}

/// Fragments packets for one MTU.
#[derive(Debug)]
pub struct Fragmenter {
    mtu: usize,
    identifications: Identifications,
    buffer: Vec<u8>,
    counters: Counters,
}

impl Fragmenter {
    /// For fragments of at most `mtu` bytes, at least [`LEAST_MTU`]; stores at most `pairs` pairs
    /// of addresses. `seed` determines the first identifications.
    #[must_use]
    pub fn new(mtu: usize, pairs: usize, seed: u64) -> Self {
        let mtu = mtu.max(LEAST_MTU);
        Self {
            mtu,
            identifications: Identifications::new(pairs, seed),
            buffer: Vec::with_capacity(mtu),
            counters: Counters::default(),
        }
    }

    /// Sets the MTU for the following packets, at least [`LEAST_MTU`].
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu.max(LEAST_MTU);
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Passes the fragments of `packet` to `emit` in order, or the packet itself if it fits.
    /// Returns their number. `packet` begins with its IP header; bytes after its own length are
    /// ignored.
    ///
    /// # Errors
    /// See [`Refused`]; then no fragment was passed on.
    pub fn fragment(
        &mut self,
        now: Time,
        packet: &[u8],
        emit: impl FnMut(&[u8]),
    ) -> Result<usize, Refused> {
        let result = self.cut(now, packet, emit);
        let counters = &mut self.counters;
        match &result {
            Ok(1) => counters.whole += 1,
            Ok(count) => {
                counters.cut += 1;
                counters.fragments += *count as u64;
            }
            Err(Refused::Malformed) => counters.malformed += 1,
            Err(Refused::Fragment | Refused::Header) => counters.uncuttable += 1,
            Err(Refused::Exhausted) => counters.exhausted += 1,
        }
        result
    }

    fn cut(
        &mut self,
        now: Time,
        packet: &[u8],
        mut emit: impl FnMut(&[u8]),
    ) -> Result<usize, Refused> {
        let parsed = cut::parse(packet)?;
        if parsed.whole.len() <= self.mtu {
            emit(parsed.whole);
            return Ok(1);
        }
        // Refused before an identification is used.
        parsed.check(self.mtu)?;
        let number = self.identifications.next(now, parsed.pair);
        let number = number.ok_or(Refused::Exhausted)?;
        Ok(parsed.cut(self.mtu, number, &mut self.buffer, emit))
    }
}
