//! The largest of the newest values.

/// The largest of at least the newest `span` and at most the newest `2 * span` values. Only two
/// numbers are kept: the maximum of the present group of `span` values and that of the group
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecentMaximum {
    span: u8,
    count: u8,
    present: u64,
    before: u64,
}

impl RecentMaximum {
    /// Without any value yet.
    pub(crate) const fn new(span: u8) -> Self {
        Self {
            span,
            count: 0,
            present: 0,
            before: 0,
        }
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, value: u64) {
        if self.count >= self.span {
            self.before = std::mem::take(&mut self.present);
            self.count = 0;
        }
        self.count += 1;
        self.present = self.present.max(value);
    }

    /// Adds a value that may be too low: it counts only if it is the largest, and other values do
    /// not age by it.
    pub(crate) fn add_lower_bound(&mut self, value: u64) {
        if value > self.get() {
            self.present = value;
        }
    }

    /// The largest value; 0 if there is none.
    pub(crate) fn get(&self) -> u64 {
        self.present.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_lies_between_the_maxima_of_one_span_and_of_two(
            values in proptest::collection::vec(0_u64..1000, 1..60),
            span in 1_u8..10,
        ) {
            let mut maximum = RecentMaximum::new(span);
            for (index, value) in values.iter().enumerate() {
                maximum.add(*value);
                let newest = |count: usize| {
                    let from = (index + 1).saturating_sub(count);
                    values[from..=index].iter().max().copied().unwrap_or(0)
                };
                let span = usize::from(span);
                prop_assert!(newest(span) <= maximum.get());
                prop_assert!(maximum.get() <= newest(2 * span));
            }
        }
    }
}
