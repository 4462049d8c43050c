//! Decides whether the tables are still as Midspan put them. Without I/O.

use midspan_linux::nftables::Generation;

/// The tables as the kernel listed them when they were put, and the number of the host's ruleset
/// when the tables were last seen unchanged.
///
/// The number only saves reading the tables. If the kernel does not report it, the tables are
/// listed and compared.
#[derive(Debug, Default)]
pub struct AsPut {
    shown: Vec<Option<String>>,
    seen: Option<u32>,
}

impl AsPut {
    /// The tables are about to be put. Until that has succeeded, their state is unknown.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The tables were put, and the kernel listed them as `shown`. Returns whether `shown` can be
    /// treated as the tables that were put. It cannot if another program may have changed them
    /// before they were listed.
    pub fn handle_put(&mut self, generation: Generation, shown: Vec<Option<String>>) -> bool {
        if generation == Generation::OthersChanged {
            return false;
        }
        self.shown = shown;
        self.seen = generation.number();
        true
    }

    /// Whether the tables were put, and have not been found changed since.
    pub fn is_put(&self) -> bool {
        !self.shown.is_empty()
    }

    /// Whether the number of the ruleset proves that the tables are as they were put. If the number
    /// has changed or is missing, the tables must be [listed](Self::handle_list).
    pub fn is_known(&self, number: Option<u32>) -> bool {
        number.is_some() && number == self.seen
    }

    /// The tables were listed, after the ruleset's number was read. Returns whether they are as
    /// they were put.
    pub fn handle_list(&mut self, number: Option<u32>, tables: &[Option<String>]) -> bool {
        let same = tables == self.shown;
        self.seen = number.filter(|_| same);
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(text: &str) -> Vec<Option<String>> {
        vec![Some(text.to_owned())]
    }

    #[test]
    fn a_number_spares_a_look() {
        let mut state = AsPut::default();
        assert!(state.handle_put(Generation::Known(7), tables("ours")));
        assert!(state.is_known(Some(7)));
        assert!(!state.is_known(Some(8)) && !state.is_known(None));
        assert!(state.handle_list(Some(8), &tables("ours")));
        assert!(state.is_known(Some(8)));
        assert!(!state.handle_list(Some(9), &tables("changed")));
        assert!(!state.is_known(Some(9)));
    }

    #[test]
    fn without_a_number_tables_are_listed_and_compared_and_not_put_again() {
        let mut state = AsPut::default();
        assert!(state.handle_put(Generation::Unreadable, tables("ours")));
        for _ in 0..3 {
            assert!(!state.is_known(None));
            assert!(state.handle_list(None, &tables("ours")));
        }
        assert!(!state.handle_list(None, &[None]), "all was removed");
    }

    #[test]
    fn what_others_changed_meanwhile_is_not_taken_for_ours() {
        let mut state = AsPut::default();
        assert!(!state.handle_put(Generation::OthersChanged, tables("theirs")));
        assert!(!state.handle_list(Some(9), &tables("theirs")));
        assert!(state.handle_put(Generation::Known(7), tables("ours")));
        state.forget();
        assert!(!state.is_known(Some(7)));
        assert!(!state.handle_list(Some(7), &tables("ours")));
    }
}
