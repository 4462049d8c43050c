//! Finds the nearest valid name.

/// The candidate that `name` most likely means; `None` if none is near.
///
/// Near means an edit distance (with transpositions) of at most a third of the longer name, but at
/// least 1. Of equally near candidates, the first is used.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The cost is the product of the two lengths.
    if name.chars().count() > LONGEST {
        return None;
    }
    let name = name.to_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST)
        .filter_map(|candidate| {
            let longer = name.chars().count().max(candidate.chars().count());
            let distance = strsim::damerau_levenshtein(&name, &candidate.to_lowercase());
            (distance <= (longer / 3).max(1) && distance < longer).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

const LONGEST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["delay", "rate", "between", "queue"];

    #[test]
    fn a_slip_of_the_fingers_is_recognised() {
        assert_eq!(nearest("dealy", NAMES), Some("delay"));
        assert_eq!(nearest("betwen", NAMES), Some("between"));
        assert_eq!(nearest("Queue", NAMES), Some("queue"));
    }

    #[test]
    fn another_word_is_not_near() {
        assert_eq!(nearest("jitter", NAMES), None);
        assert_eq!(nearest("", NAMES), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest(&"delay".repeat(100_000), NAMES), None);
    }
}
