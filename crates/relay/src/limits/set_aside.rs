//! Memory of the budget that is set aside for connections without a session.

use std::sync::{Arc, Mutex, Weak};

use super::{Limits, lock};

/// Bytes of the budget that are in use, or may come to be used, until this is dropped.
#[derive(Debug)]
pub struct SetAside(Arc<MemoryAside>);

/// Memory that is set aside, and that another thread than the owner of the [`SetAside`] may give back.
#[derive(Debug)]
pub(crate) struct MemoryAside {
    limits: Arc<Limits>,
    bytes: Mutex<Bytes>,
}

#[derive(Debug)]
struct Bytes {
    used: u64,
    reserved: u64,
    is_opening: bool,
    is_gone: bool,
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
        lock(&set_aside.0.bytes).is_opening = true;
        set_aside.change(bytes);
        Some(set_aside)
    }

    /// Sets at least this much memory aside; none of it is in use yet.
    pub(crate) fn set_aside(self: &Arc<Self>, least: u64) -> SetAside {
        self.budget.change_aside(0, least);
        let bytes = Bytes {
            used: 0,
            reserved: least,
            is_opening: false,
            is_gone: false,
        };
        SetAside(Arc::new(MemoryAside {
            limits: Arc::clone(self),
            bytes: Mutex::new(bytes),
        }))
    }
}

impl SetAside {
    /// Sets the bytes in use. The bytes that are set aside do not decrease.
    pub(crate) fn change(&mut self, used: u64) {
        let mut bytes = lock(&self.0.bytes);
        if bytes.is_gone {
            return;
        }
        let reserved = bytes.reserved.max(used);
        let budget = &self.0.limits.budget;
        budget.change_use(bytes.used, used);
        budget.change_aside(bytes.reserved, reserved);
        (bytes.used, bytes.reserved) = (used, reserved);
    }

    /// The memory, which is given back at the latest when this value is dropped.
    pub(crate) fn memory(&self) -> Weak<MemoryAside> {
        Arc::downgrade(&self.0)
    }
}

impl MemoryAside {
    /// Gives the memory back, if that has not been done yet.
    pub fn give_back(&self) {
        let mut bytes = lock(&self.bytes);
        if std::mem::replace(&mut bytes.is_gone, true) {
            return;
        }
        let budget = &self.limits.budget;
        budget.change_use(bytes.used, 0);
        budget.change_aside(bytes.reserved, 0);
        if bytes.is_opening {
            budget.change_opening(bytes.reserved, 0);
        }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RelayLimits, Shortage};
    use super::*;
    use midspan_units::ByteSize;

    #[test]
    fn memory_is_given_back_once() {
        let limits = Arc::new(Limits::new(&RelayLimits::default(), 0));
        let mut one = limits.set_aside(40 << 10);
        let other = limits.set_aside(1 << 10);
        one.memory().upgrade().unwrap().give_back();
        assert_eq!(limits.budget.reserved(), 1 << 10);
        one.change(50 << 10);
        drop(one);
        assert_eq!(limits.budget.reserved(), 1 << 10);
        drop(other);
        assert_eq!((limits.budget.used(), limits.budget.reserved()), (0, 0));
    }

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
