//! The cases, by subject. A case is a function that scripts both ends.

mod closing;
mod data;
mod ends;
mod lost;
mod many;
mod opening;
mod path;
mod proxy;
mod resetting;

use std::time::Duration;

use crate::case::Case;
use crate::end::End;
use crate::error::{Error, Played, Stop};
use crate::network::Place;
use crate::stage::Stage;

/// All cases, in the order of tables.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        opening::CASES,
        closing::CASES,
        resetting::CASES,
        data::CASES,
        lost::CASES,
        path::CASES,
        ends::CASES,
        proxy::CASES,
        many::CASES,
    ]
    .concat()
}

/// One end sends `count` bytes while the other receives them.
fn transfer(from: &mut End, to: &mut End, count: u64) -> Played {
    at_once(from, to, |from| from.send(count), |to| to.receive(count))
}

/// Runs the actions of both ends at the same time; the result is the first failure.
fn at_once(
    one: &mut End,
    other: &mut End,
    one_acts: impl FnOnce(&mut End) -> Played + Send,
    other_acts: impl FnOnce(&mut End) -> Played + Send,
) -> Played {
    let (near, far) = std::thread::scope(|scope| {
        let near = scope.spawn(|| one_acts(one));
        let far = other_acts(other);
        (near.join(), far)
    });
    near.map_err(|_| Stop::Failed(Error::Unknown("a script panicked".to_owned())))??;
    far
}

/// Runs an action while a rule of a router drops packets. Removes the rule after `time`, even if
/// the action still runs.
fn healed_while<T>(
    stage: &Stage<'_>,
    place: Place,
    rule: &str,
    time: Duration,
    action: impl FnOnce() -> Result<T, Stop>,
) -> Result<T, Stop> {
    let network = stage.network;
    network.filter(place, rule)?;
    let (result, healed) = std::thread::scope(|scope| {
        let healed = scope.spawn(|| {
            std::thread::sleep(time);
            network.heal(place)
        });
        (action(), healed.join())
    });
    healed.map_err(|_| Stop::Failed(Error::Unknown("a thread panicked".to_owned())))??;
    result
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_in_plain_words() {
        let cases = all();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.len() >= 35, "{}", cases.len());
        for name in names {
            let words = name.replace(['-', ',', ':'], " ");
            let plain = |word: &str| {
                ["FIN", "SYN", "MTU"].contains(&word)
                    || word.chars().all(|c| c.is_ascii_lowercase())
            };
            assert!(words.split(' ').all(plain), "{name}");
        }
    }
}
