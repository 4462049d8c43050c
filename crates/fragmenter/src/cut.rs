//! Reads a packet's headers and fragments it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use crate::Pair;

/// Smallest MTU for which fragments can be made, in bytes. Every IPv4 host accepts packets of this
/// size (RFC 791 §3.1); IPv6 links carry at least 1,280 bytes (RFC 8200 §5).
pub const LEAST_MTU: usize = 576;

const FOUR_HEADER: usize = 20;
const SIX_HEADER: usize = 40;
const FRAGMENT_HEADER: usize = 8;
/// IPv6 extension headers that every router reads and that are repeated in each fragment.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
const FRAGMENT: u8 = 44;
/// More extension headers than any packet in use has; bounds the loop.
const MOST_HEADERS: usize = 4;

/// Why a packet was not fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// It is no IP packet, or its length field is wrong.
    #[error("it is no whole IP packet")]
    Malformed,
    /// It is a fragment already.
    #[error("it is a fragment already")]
    Fragment,
    /// Its header leaves no room, or has options that need not be in every fragment.
    #[error("its header cannot be repeated in fragments")]
    Header,
    /// All identifications of its addresses are in use.
    #[error("no identification is free for its addresses")]
    Exhausted,
}

/// A packet whose headers have been read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parsed<'a> {
    /// The packet, up to the length in its header.
    pub whole: &'a [u8],
    pub pair: Pair,
    /// Number of bytes that are repeated in each fragment.
    header: usize,
    /// Position of the byte with the type of the next header (IPv6).
    next_header: usize,
    is_four: bool,
    is_plain: bool,
    is_fragment: bool,
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

fn address<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..at + N)?.try_into().ok()
}

pub(crate) fn parse(packet: &[u8]) -> Result<Parsed<'_>, Refused> {
    let parsed = match packet.first().map(|first| first >> 4) {
        Some(4) => parse_four(packet),
        Some(6) => parse_six(packet),
        _ => None,
    };
    parsed.ok_or(Refused::Malformed)
}

fn parse_four(packet: &[u8]) -> Option<Parsed<'_>> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let whole = packet.get(..usize::from(word(packet, 2)?))?;
    if header < FOUR_HEADER || whole.len() < header {
        return None;
    }
    let source = Ipv4Addr::from(address::<4>(whole, 12)?);
    let destination = Ipv4Addr::from(address::<4>(whole, 16)?);
    Some(Parsed {
        whole,
        pair: Pair {
            source: IpAddr::V4(source),
            destination: IpAddr::V4(destination),
        },
        header,
        next_header: 0,
        is_four: true,
        // Some options belong to the first fragment only.
        is_plain: header == FOUR_HEADER,
        is_fragment: word(whole, 6)? & 0x3fff != 0,
    })
}

fn parse_six(packet: &[u8]) -> Option<Parsed<'_>> {
    let length = SIX_HEADER + usize::from(word(packet, 4)?);
    let whole = packet.get(..length)?;
    let (mut next_header, mut header) = (6, SIX_HEADER);
    let mut kind = *whole.get(next_header)?;
    // RFC 8200 §4.5: hop-by-hop options, and headers before a routing header, are in each fragment.
    let mut is_plain = true;
    for _ in 0..MOST_HEADERS {
        if !matches!(kind, HOP_BY_HOP | ROUTING | DESTINATION) {
            break;
        }
        next_header = header;
        kind = *whole.get(header)?;
        header += (usize::from(*whole.get(header + 1)?) + 1) * 8;
        if header > whole.len() {
            return None;
        }
    }
    if matches!(kind, HOP_BY_HOP | ROUTING | DESTINATION) {
        is_plain = false;
    }
    let source = Ipv6Addr::from(address::<16>(whole, 8)?);
    let destination = Ipv6Addr::from(address::<16>(whole, 24)?);
    Some(Parsed {
        whole,
        pair: Pair {
            source: IpAddr::V6(source),
            destination: IpAddr::V6(destination),
        },
        header,
        next_header,
        is_four: false,
        is_plain,
        is_fragment: kind == FRAGMENT,
    })
}

impl Parsed<'_> {
    /// Bytes before the data in each fragment.
    const fn overhead(&self) -> usize {
        self.header + if self.is_four { 0 } else { FRAGMENT_HEADER }
    }

    /// Whether the packet can be fragmented for `mtu`.
    pub fn check(&self, mtu: usize) -> Result<(), Refused> {
        if self.is_fragment {
            return Err(Refused::Fragment);
        }
        let data = self.whole.len() - self.header;
        // Offsets count units of 8 bytes in 13 bits.
        if !self.is_plain || self.overhead() + 8 > mtu || data > 65_535 {
            return Err(Refused::Header);
        }
        Ok(())
    }

    /// Passes the fragments to `emit`; returns their number.
    pub fn cut(
        &self,
        mtu: usize,
        number: u32,
        buffer: &mut Vec<u8>,
        mut emit: impl FnMut(&[u8]),
    ) -> usize {
        let (header, data) = self.whole.split_at(self.header);
        // Each fragment except the last carries a multiple of 8 bytes.
        let most = (mtu - self.overhead()) / 8 * 8;
        let mut count = 0;
        for (index, part) in data.chunks(most).enumerate() {
            let offset = index * most;
            let more = offset + part.len() < data.len();
            buffer.clear();
            buffer.extend_from_slice(header);
            let place = u16::try_from(offset).unwrap_or(u16::MAX);
            match self.is_four {
                true => finish_four(buffer, part.len(), place, more, number),
                false => self.finish_six(buffer, part.len(), place, more, number),
            }
            buffer.extend_from_slice(part);
            emit(buffer);
            count += 1;
        }
        count
    }

    /// Turns the copied headers into those of a fragment, and adds a fragment header.
    fn finish_six(&self, head: &mut Vec<u8>, part: usize, offset: u16, more: bool, number: u32) {
        let length = self.header - SIX_HEADER + FRAGMENT_HEADER + part;
        let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        head[4..6].copy_from_slice(&length);
        let following = std::mem::replace(&mut head[self.next_header], FRAGMENT);
        head.extend_from_slice(&[following, 0]);
        // The offset's three low bits are zero and its unit is 8 bytes, so it is in the right
        // position already.
        head.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
        head.extend_from_slice(&number.to_be_bytes());
    }
}

/// Turns a copied header into that of a fragment.
fn finish_four(head: &mut [u8], part: usize, offset: u16, more: bool, number: u32) {
    let length = u16::try_from(head.len() + part).unwrap_or(u16::MAX);
    head[2..4].copy_from_slice(&length.to_be_bytes());
    #[allow(clippy::cast_possible_truncation)]
    head[4..6].copy_from_slice(&(number as u16).to_be_bytes());
    let flags = (offset / 8) | (u16::from(more) << 13);
    head[6..8].copy_from_slice(&flags.to_be_bytes());
    head[10..12].fill(0);
    let sum = midspan_wire::checksum([&*head]);
    head[10..12].copy_from_slice(&sum);
}
