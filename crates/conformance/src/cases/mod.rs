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

/// Lets both ends act at the same time; the first that stops decides.
fn at_once(
    client: &mut End,
    server: &mut End,
    client_acts: impl FnOnce(&mut End) -> Played + Send,
    server_acts: impl FnOnce(&mut End) -> Played + Send,
) -> Played {
    let (near, far) = std::thread::scope(|scope| {
        let near = scope.spawn(|| client_acts(client));
        let far = server_acts(server);
        (near.join(), far)
    });
    near.map_err(|_| Stop::Failed(Error::Unknown("a script panicked".to_owned())))??;
    far
}
