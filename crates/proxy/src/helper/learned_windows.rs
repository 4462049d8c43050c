//! The initial windows from which learned starts may choose; each needs a mark.

use std::collections::BTreeSet;

use midspan_gateway::interception::Marks;

use crate::configuration::Configuration;

/// The windows of transparent listeners, limited by the number of marks that `others` leave.
pub(super) fn granted(configuration: &Configuration, others: usize) -> BTreeSet<u32> {
    let transparent = || configuration.transparent().map(|(of, _)| &of.relay);
    let wanted: BTreeSet<u32> = transparent()
        .flat_map(|of| of.learned_windows.iter().copied())
        .collect();
    let marks = usize::try_from(configuration.marks.marks.count()).unwrap_or(usize::MAX);
    let taken = Marks::BESIDES_LISTENERS + transparent().count() + others;
    spread(&wanted, marks.saturating_sub(taken))
}

/// At most `room` of the windows: the largest, and others at even distances below it.
fn spread(wanted: &BTreeSet<u32>, room: usize) -> BTreeSet<u32> {
    let count = room.min(wanted.len());
    let places: BTreeSet<usize> = (1..=count).map(|k| k * wanted.len() / count - 1).collect();
    let wanted = wanted.iter().enumerate();
    wanted
        .filter(|(place, _)| places.contains(place))
        .map(|(_, window)| *window)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_marks_are_few_the_windows_lie_further_apart() {
        let wanted = BTreeSet::from([20, 40, 80, 160, 320]);
        let of = |room| spread(&wanted, room).into_iter().collect::<Vec<_>>();
        assert_eq!(of(9), [20, 40, 80, 160, 320]);
        assert_eq!(of(3), [20, 80, 320]);
        assert_eq!(of(2), [40, 320]);
        assert_eq!(of(1), [320]);
        assert!(of(0).is_empty());
    }
}
