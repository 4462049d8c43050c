//! Memory of the budget that is set aside for connections without a session.

use std::sync::{Arc, Mutex, Weak};

use midspan_policy::LegStart;

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
    /// What the receive window of a server leg may come to hold. It counts as queues, as it does in a session.
    window: u64,
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
            window: 0,
            is_opening: false,
            is_gone: false,
        };
        SetAside(Arc::new(MemoryAside {
            limits: Arc::clone(self),
            bytes: Mutex::new(bytes),
        }))
    }

    /// Leaves a new server leg the kernel's own receive window, unless there is memory for a larger one. What a
    /// larger one may come to hold is set aside: until the leg belongs to a session that is measured, nothing else
    /// counts it, and many connections that begin at once would get more than there is.
    #[must_use]
    pub fn offer_window(self: &Arc<Self>, leg: &mut LegStart) -> Option<SetAside> {
        let window = leg.receive_window?;
        let Some(reserved) = self.budget.reserve_window(window.bytes()) else {
            leg.receive_window = None;
            return None;
        };
        Some(self.window_aside(reserved))
    }

    /// Owns the reservation of a window.
    fn window_aside(self: &Arc<Self>, reserved: u64) -> SetAside {
        let set_aside = self.set_aside(0);
        lock(&set_aside.0.bytes).window = reserved;
        set_aside
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

    /// What the receive window may come to hold, in bytes.
    pub(crate) fn window(&self) -> u64 {
        lock(&self.0.bytes).window
    }

    /// Takes the receive window of another connection attempt over.
    pub(crate) fn take_window(&mut self, other: &Self) {
        let window = std::mem::take(&mut lock(&other.0.bytes).window);
        let mut bytes = lock(&self.0.bytes);
        match bytes.is_gone {
            true => self.0.limits.budget.change_reserved(window, 0),
            false => bytes.window = bytes.window.saturating_add(window),
        }
    }

    /// Splits the receive window off, if there is one.
    pub(crate) fn split_window(&mut self) -> Option<Self> {
        let window = std::mem::take(&mut lock(&self.0.bytes).window);
        (window > 0).then(|| self.0.limits.window_aside(window))
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
        budget.change_reserved(std::mem::take(&mut bytes.window), 0);
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

    fn with_budget(bytes: u64) -> Arc<Limits> {
        let limits = RelayLimits {
            memory: Some(ByteSize::from_bytes(bytes)),
            ..RelayLimits::default()
        };
        Arc::new(Limits::new(&limits, 0))
    }

    fn server_leg() -> LegStart {
        LegStart {
            receive_window: Some(ByteSize::from_bytes(1 << 20)),
            ..LegStart::default()
        }
    }

    /// Connections that begin at once: none of them has been measured yet.
    #[test]
    fn windows_that_are_offered_at_once_share_the_budget() {
        let limits = with_budget(64 << 20);
        let mut legs: Vec<LegStart> = (0..100).map(|_| server_leg()).collect();
        let offered: Vec<_> = legs
            .iter_mut()
            .map(|leg| limits.offer_window(leg))
            .collect();
        // A window of 1 MiB may come to take 4 MiB, and all of them get a quarter of the budget.
        let with_window = legs.iter().filter(|leg| leg.receive_window.is_some());
        assert_eq!(with_window.count(), 4);
        assert_eq!(offered.iter().flatten().count(), 4);
        assert_eq!(limits.budget.reserved(), 16 << 20);
        // They count as queues.
        assert_eq!(limits.budget.share().unwrap().queues(), 16 << 20);
        assert!(!limits.budget.is_short());
        drop(offered);
        assert_eq!(limits.budget.reserved(), 0);
        assert!(limits.offer_window(&mut server_leg()).is_some());
        let mut without = LegStart::default();
        assert!(limits.offer_window(&mut without).is_none());
    }

    #[test]
    fn the_window_of_an_attempt_belongs_to_its_negotiation_and_then_to_its_session() {
        let limits = with_budget(64 << 20);
        let mut negotiation = limits.set_aside(40 << 10);
        for _ in 0..2 {
            let attempt = limits.offer_window(&mut server_leg()).unwrap();
            negotiation.take_window(&attempt);
        }
        assert_eq!(negotiation.window(), 8 << 20);
        assert_eq!(limits.budget.reserved(), (8 << 20) + (40 << 10));
        let session = negotiation.split_window().unwrap();
        assert_eq!((session.window(), negotiation.window()), (8 << 20, 0));
        assert!(negotiation.split_window().is_none());
        drop(negotiation);
        assert_eq!(limits.budget.reserved(), 8 << 20);
        drop(session);
        assert_eq!(limits.budget.reserved(), 0);
        // The memory of a negotiation on a stuck thread is given back by another thread.
        let mut stuck = limits.set_aside(40 << 10);
        stuck.take_window(&limits.offer_window(&mut server_leg()).unwrap());
        stuck.memory().upgrade().unwrap().give_back();
        stuck.take_window(&limits.offer_window(&mut server_leg()).unwrap());
        drop(stuck);
        assert_eq!(limits.budget.reserved(), 0);
    }

    #[test]
    fn what_is_set_aside_counts_and_comes_back() {
        let limits = with_budget(16 << 20);
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
