//! ACKs before data, in the queue of a host that uploads while it downloads (Tam §5.2; RFC 3449
//! §5.3 “ACKs-first scheduling”).

/// The two kinds of packets that wait for the narrow link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Pure ACKs.
    Acknowledgement,
    /// All other packets.
    Data,
}

/// Strict priority of ACKs, with a bound so that data is never starved: after `most` bytes of ACKs
/// in a row while data waited, one data packet is sent.
///
/// RFC 3449 §5.3 names the danger: the ACKs of a fast downstream alone can fill a narrow upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFirst {
    most: u64,
    in_a_row: u64,
}

impl AckFirst {
    /// At most `most` bytes of ACKs are sent in a row while data waits. Three times the link's MTU
    /// leaves data at least a quarter of the link.
    #[must_use]
    pub const fn new(most: u64) -> Self {
        Self { most, in_a_row: 0 }
    }

    /// The class of the next packet; `None` if no packet waits.
    #[must_use]
    pub const fn next(&self, acknowledgements_wait: bool, data_waits: bool) -> Option<Class> {
        match (acknowledgements_wait, data_waits) {
            (false, false) => None,
            (true, false) => Some(Class::Acknowledgement),
            (false, true) => Some(Class::Data),
            (true, true) if self.in_a_row >= self.most => Some(Class::Data),
            (true, true) => Some(Class::Acknowledgement),
        }
    }

    /// A packet of `bytes` was sent.
    pub const fn handle_sent(&mut self, class: Class, bytes: u64, data_waits: bool) {
        self.in_a_row = match class {
            Class::Acknowledgement if data_waits => self.in_a_row.saturating_add(bytes),
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_go_first_and_data_gets_its_turn() {
        let mut first = AckFirst::new(200);
        let mut order = Vec::new();
        for _ in 0..10 {
            let class = first.next(true, true).unwrap();
            let size = if class == Class::Data { 1500 } else { 52 };
            first.handle_sent(class, size, true);
            order.push(class);
        }
        let data: Vec<usize> = (0..10).filter(|at| order[*at] == Class::Data).collect();
        // 4 × 52 = 208 bytes of ACKs, then one data packet.
        assert_eq!(data, [4, 9]);
    }

    #[test]
    fn acks_alone_are_not_counted() {
        let mut first = AckFirst::new(100);
        for _ in 0..50 {
            assert_eq!(first.next(true, false), Some(Class::Acknowledgement));
            first.handle_sent(Class::Acknowledgement, 52, false);
        }
        assert_eq!(first.next(true, true), Some(Class::Acknowledgement));
        assert_eq!(first.next(false, true), Some(Class::Data));
        assert_eq!(first.next(false, false), None);
    }
}
