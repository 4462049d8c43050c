//! Memory of the budget that is set aside for connections without a session.

use std::sync::Arc;

use super::Limits;

/// Bytes of the budget that are in use, or may come to be used, until this is dropped.
#[derive(Debug)]
pub struct SetAside {
    limits: Arc<Limits>,
    used: u64,
    reserved: u64,
    is_opening: bool,
}

impl Limits {
    /// Sets memory aside for a connection that is being opened; `None` if the budget is used up, or
    /// the part of it for such connections.
    pub fn set_aside_to_open(self: &Arc<Self>, bytes: u64) -> Option<SetAside> {
        if !self.budget.has_room_to_open(bytes) {
            return None;
        }
        self.budget.change_opening(0, bytes);
        let mut set_aside = self.set_aside(bytes);
        set_aside.is_opening = true;
        set_aside.change(bytes);
        Some(set_aside)
    }

    /// Sets at least this much memory aside; none of it is in use yet.
    pub(crate) fn set_aside(self: &Arc<Self>, least: u64) -> SetAside {
        self.budget.change_aside(0, least);
        SetAside {
            limits: Arc::clone(self),
            used: 0,
            reserved: least,
            is_opening: false,
        }
    }
}

impl SetAside {
    /// Sets the bytes in use. The bytes that are set aside do not decrease.
    pub(crate) fn change(&mut self, used: u64) {
        let reserved = self.reserved.max(used);
        let budget = &self.limits.budget;
        budget.change_use(self.used, used);
        budget.change_aside(self.reserved, reserved);
        (self.used, self.reserved) = (used, reserved);
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let budget = &self.limits.budget;
        budget.change_use(self.used, 0);
        budget.change_aside(self.reserved, 0);
        if self.is_opening {
            budget.change_opening(self.reserved, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RelayLimits, Shortage};
    use super::*;
    use midspan_units::ByteSize;

    #[test]
    fn what_is_set_aside_counts_and_comes_back() {
        let limits = Arc::new(Limits::new(
            &RelayLimits {
                memory: Some(ByteSize::from_bytes(16 << 20)),
                ..RelayLimits::default()
            },
            0,
        ));
        let mut one = limits.set_aside(40 << 10);
        one.change(1 << 10);
        let counted = || (limits.budget.used(), limits.budget.reserved());
        assert_eq!(counted(), (1 << 10, 40 << 10));
        one.change(50 << 10);
        one.change(2 << 10);
        assert_eq!(counted(), (2 << 10, 50 << 10));
        // An eighth of the budget is for connections that are being opened.
        let opening: Vec<_> = std::iter::from_fn(|| limits.set_aside_to_open(100 << 10)).collect();
        assert_eq!(opening.len(), (2 << 20) / (100 << 10));
        let other = limits.set_aside(13 << 20);
        let places = limits.set_listener("one", Default::default(), true);
        let client = Some("192.0.2.1".parse().unwrap());
        assert_eq!(
            limits.take_of(&places, client).unwrap_err(),
            Shortage::Memory
        );
        drop((one, opening, other));
        assert_eq!(counted(), (0, 0));
        assert!(limits.set_aside_to_open(1 << 20).is_some());
        assert!(limits.take_of(&places, client).is_ok());
    }
}
