//! The fields of IPv4 and TCP headers.

/// Largest number of bytes: IPv4 and TCP headers with all options.
const LONGEST: usize = 120;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;
pub(super) const URG: u8 = 0x20;

pub(super) const TCP: u8 = 6;
pub(super) const PROTOCOL: usize = 9;
const TOTAL_LENGTH: usize = 2;
const IDENTIFICATION: usize = 4;
const FRAGMENT: usize = 6;

/// An IPv4 header and a TCP header together, checked to be complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    bytes: Vec<u8>,
    /// Number of bytes of the IPv4 header.
    ip: usize,
}

impl Header {
    /// The headers at the start of `packet`; `None` if they are not complete IPv4 and TCP headers.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        let ip = usize::from(first & 0xf) * 4;
        if first >> 4 != 4 || ip < 20 || *packet.get(PROTOCOL)? != TCP {
            return None;
        }
        let tcp = usize::from(packet.get(ip + 12)? >> 4) * 4;
        let end = ip + tcp;
        let total = usize::from(u16::from_be_bytes([
            *packet.get(TOTAL_LENGTH)?,
            *packet.get(TOTAL_LENGTH + 1)?,
        ]));
        if tcp < 20 || total < end || end > LONGEST {
            return None;
        }
        let bytes = packet.get(..end)?.to_vec();
        Some(Self { bytes, ip })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn short(&self, at: usize) -> u16 {
        let byte = |at| self.bytes.get(at).copied().unwrap_or_default();
        u16::from_be_bytes([byte(at), byte(at + 1)])
    }

    fn long(&self, at: usize) -> u32 {
        u32::from(self.short(at)) << 16 | u32::from(self.short(at + 2))
    }

    fn write(&mut self, at: usize, value: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(at).zip(value) {
            *to = *from;
        }
    }

    /// Number of bytes of data that the packet carries.
    pub(super) fn data(&self) -> u16 {
        let headers = u16::try_from(self.bytes.len()).unwrap_or(u16::MAX);
        self.short(TOTAL_LENGTH).saturating_sub(headers)
    }

    pub(super) fn is_fragment(&self) -> bool {
        self.short(FRAGMENT) & 0x3fff != 0
    }

    pub(super) fn flags(&self) -> u8 {
        self.bytes.get(self.ip + 13).copied().unwrap_or_default()
    }

    pub(super) fn set_flag(&mut self, flag: u8, on: bool) {
        let flags = if on {
            self.flags() | flag
        } else {
            self.flags() & !flag
        };
        self.write(self.ip + 13, &[flags]);
    }

    /// Whether both headers belong to one connection and one direction.
    pub(super) fn is_of_same_connection(&self, other: &Self) -> bool {
        self.bytes.get(12..20) == other.bytes.get(12..20)
            && self.bytes.get(self.ip..self.ip + 4) == other.bytes.get(other.ip..other.ip + 4)
    }

    /// Whether all fields are equal that a compressed header cannot change: version, header
    /// lengths, type of service, fragment flags, time to live, options.
    pub(super) fn has_same_frame(&self, other: &Self) -> bool {
        let part = |header: &Self, at: usize| header.short(at);
        let offset = |header: &Self| header.bytes.get(header.ip + 12).map(|byte| byte >> 4);
        [0, FRAGMENT, 8]
            .into_iter()
            .all(|at| part(self, at) == part(other, at))
            && offset(self) == offset(other)
            && self.bytes.get(20..self.ip) == other.bytes.get(20..other.ip)
            && self.bytes.get(self.ip + 20..) == other.bytes.get(other.ip + 20..)
    }

    pub(super) fn identification(&self) -> u16 {
        self.short(IDENTIFICATION)
    }

    pub(super) fn sequence(&self) -> u32 {
        self.long(self.ip + 4)
    }

    pub(super) fn acknowledgement(&self) -> u32 {
        self.long(self.ip + 8)
    }

    pub(super) fn window(&self) -> u16 {
        self.short(self.ip + 14)
    }

    pub(super) fn checksum(&self) -> [u8; 2] {
        self.short(self.ip + 16).to_be_bytes()
    }

    pub(super) fn urgent(&self) -> u16 {
        self.short(self.ip + 18)
    }

    pub(super) fn set_protocol(&mut self, value: u8) {
        self.write(PROTOCOL, &[value]);
    }

    pub(super) fn set_identification(&mut self, value: u16) {
        self.write(IDENTIFICATION, &value.to_be_bytes());
    }

    pub(super) fn set_sequence(&mut self, value: u32) {
        self.write(self.ip + 4, &value.to_be_bytes());
    }

    pub(super) fn set_acknowledgement(&mut self, value: u32) {
        self.write(self.ip + 8, &value.to_be_bytes());
    }

    pub(super) fn set_window(&mut self, value: u16) {
        self.write(self.ip + 14, &value.to_be_bytes());
    }

    pub(super) fn set_checksum(&mut self, value: [u8; 2]) {
        self.write(self.ip + 16, &value);
    }

    pub(super) fn set_urgent(&mut self, value: u16) {
        self.write(self.ip + 18, &value.to_be_bytes());
    }

    /// Sets the length for `data` bytes of data, and computes the IP checksum again.
    pub(super) fn finish(&mut self, data: u16) {
        let headers = u16::try_from(self.bytes.len()).unwrap_or(u16::MAX);
        let total = headers.saturating_add(data);
        self.write(TOTAL_LENGTH, &total.to_be_bytes());
        self.write(10, &[0, 0]);
        let checksum = midspan_wire::checksum(self.bytes.get(..self.ip));
        self.write(10, &checksum);
    }
}
