//! Follows the registry of an overlay's members in etcd, and writes them to the file of members.
//!
//! This is a process of its own, `midspan overlay follow`. A running Midspan has no connection to the registry: it reads
//! the file when the file changes. So nothing that happens to the registry, or to this process, concerns what runs.
//!
//! Everything from the registry is checked before it is written: `answer` reads etcd's answers, `entries` decides what
//! the list is now. Both do no input and output. `etcd` sends the requests, `follow` repeats them.

mod answer;
mod entries;
mod etcd;
mod follow;

pub use etcd::{Credentials, Endpoint, EtcdError, InvalidEndpoint};
pub use follow::{FollowError, FollowOptions, Follower, Look};

/// For fuzz targets: any bytes as an answer of etcd, and as a file of members.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzzed(input: &[u8]) {
    let of_file = entries::Members::read(&String::from_utf8_lossy(input)).unwrap_or_default();
    let Ok(answer) = answer::entries(input, "/midspan/nodes/") else {
        return;
    };
    for members in [entries::Members::default(), of_file] {
        if let Ok(merged) = members.merged(&answer, 0) {
            let text = merged.members.to_text();
            assert_eq!(entries::Members::read(&text), Some(merged.members));
        }
    }
}
