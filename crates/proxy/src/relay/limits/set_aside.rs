//! Memory of the budget for what is no session yet.

use std::sync::Arc;

use super::Limits;

/// Bytes of the budget that are in use until this is dropped.
#[derive(Debug)]
pub struct SetAside {
    limits: Arc<Limits>,
    bytes: u64,
    is_opening: bool,
}

impl Limits {
    /// Sets memory aside for a connection that is being opened; `None` where the budget, or what
    /// all of these may have of it, is used up.
    pub(crate) fn set_aside_to_open(self: &Arc<Self>, bytes: u64) -> Option<SetAside> {
        if !self.budget.has_room_to_open(bytes) {
            return None;
        }
        self.budget.change_opening(0, bytes);
        Some(SetAside::new(self, bytes, true))
    }
}

impl SetAside {
    fn new(limits: &Arc<Limits>, bytes: u64, is_opening: bool) -> Self {
        limits.budget.change_use(0, bytes);
        limits.budget.change_reserved(0, bytes);
        Self {
            limits: Arc::clone(limits),
            bytes,
            is_opening,
        }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let budget = &self.limits.budget;
        budget.change_use(self.bytes, 0);
        budget.change_reserved(self.bytes, 0);
        if self.is_opening {
            budget.change_opening(self.bytes, 0);
        }
    }
}
