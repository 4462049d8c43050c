//! Cuts IP packets into fragments: IPv4 (RFC 791 §3.2) and, which the kernel does not do for TCP,
//! IPv6 (RFC 8200 §4.5).
//!
//! [`Fragmenter::fragment`] takes one whole packet and hands out its fragments. Everything in a
//! packet is checked before it is believed; what cannot be cut is refused with a reason and
//! counted ([`Counters`]). Identifications are given by [`Identifications`], unique for each pair of
//! addresses for as long as a receiver may keep a fragment.
//!
//! Pure: no clock, no I/O. Memory is bounded by the limit of address pairs and one buffer of a
//! fragment.

mod cut;
mod identification;

pub use cut::{LEAST_MTU, Refused};
pub use identification::{Identifications, Pair};

use midspan_units::Time;

/// What a fragmenter has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that were cut.
    pub cut: u64,
    /// Fragments that they became.
    pub fragments: u64,
    /// Packets that fitted and went on whole.
    pub whole: u64,
    /// Packets refused since they are not what they say.
    pub malformed: u64,
    /// Packets refused since they must not be cut, or cannot.
    pub uncuttable: u64,
    /// Packets refused since no identification was free.
    pub exhausted: u64,
}

/// Cuts packets for one MTU.
#[derive(Debug)]
pub struct Fragmenter {
    mtu: usize,
    identifications: Identifications,
    buffer: Vec<u8>,
    counters: Counters,
}

impl Fragmenter {
    /// For fragments of at most `mtu` bytes, at least [`LEAST_MTU`]; remembers at most `pairs` pairs
    /// of addresses. `seed` chooses where identifications begin.
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

    /// Cuts for another MTU from now on, at least [`LEAST_MTU`].
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu.max(LEAST_MTU);
    }

    /// What it has done so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Hands the fragments of `packet` to `emit` in order, or the packet itself where it fits; how
    /// many that were. `packet` begins with its IP header; what follows its own length is ignored.
    ///
    /// # Errors
    /// See [`Refused`]; nothing has been handed out then.
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
        // Refused before an identification is spent.
        parsed.check(self.mtu)?;
        let number = self.identifications.next(now, parsed.pair);
        let number = number.ok_or(Refused::Exhausted)?;
        Ok(parsed.cut(self.mtu, number, &mut self.buffer, emit))
    }
}
