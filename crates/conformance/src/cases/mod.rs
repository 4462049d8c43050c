//! The cases, by what they are about. A case is a function that scripts both ends.

pub mod closing;
pub mod data;
pub mod ends;
pub mod many;
pub mod opening;
pub mod path;
pub mod proxy;
pub mod resetting;

use crate::end::End;
use crate::error::{Error, Played, Stop};

/// One end sends so many bytes while the other receives them.
fn transfer(from: &mut End, to: &mut End, count: u64) -> Played {
    at_once(from, to, |from| from.send(count), |to| to.receive(count))
}

/// Lets both ends act at the same time; the first that stops decides.
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
