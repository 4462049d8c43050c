//! The paths that are part of Midspan.

use midspan_document::{Located, Source};

use crate::Path;

/// A path that is part of Midspan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its description in one line, as in its text.
    pub description: &'static str,
    /// The text of its path file.
    pub text: &'static str,
}

impl BuiltIn {
    /// The path.
    ///
    /// # Errors
    /// None for a path of [`built_in`]: a test reads all of them.
    pub fn read(&self) -> Result<Path, Located> {
        Path::read(&self.source())
    }

    /// Its text, with a name like that of a file.
    #[must_use]
    pub fn source(&self) -> Source {
        Source::new(format!("{}.toml", self.name), self.text)
    }
}

/// The built-in paths: first those from practice, then the papers' testbeds.
#[must_use]
pub fn built_in() -> &'static [BuiltIn] {
    BUILT_IN
}

macro_rules! path {
    ($name:literal, $description:literal) => {
        BuiltIn {
            name: $name,
            description: $description,
            text: include_str!(concat!("../../../paths/", $name, ".toml")),
        }
    };
}

const BUILT_IN: &[BuiltIn] = &[
    path!(
        "geo",
        "GEO satellite access: 20/2 Mbit/s, 560 ms, 0.1 % loss"
    ),
    path!(
        "geo-clean",
        "GEO satellite access without loss: 20/2 Mbit/s, 560 ms"
    ),
    path!(
        "two-sided-geo",
        "GEO satellite, a proxy at both ends: 20/2 Mbit/s, 560 ms, 0.1 % loss"
    ),
    path!(
        "two-sided-geo-clean",
        "GEO satellite without loss, a proxy at both ends: 20/2 Mbit/s, 560 ms"
    ),
    path!(
        "leo",
        "LEO satellite access: 120/12 Mbit/s, 60 ms, a hand-over every 15 s"
    ),
    path!(
        "maritime",
        "A ship's VSAT: 4/1 Mbit/s, 620 ms, rain, and a mast in the way"
    ),
    path!(
        "lte",
        "LTE: 10 to 40 Mbit/s down, 4 to 12 up, 70 ms, deep queue"
    ),
    path!("cable", "Cable access: 200/10 Mbit/s, 35 ms"),
    path!("dsl", "ADSL2+ access: 14.5/0.9 Mbit/s, 50 ms"),
    path!(
        "wifi",
        "A lossy Wi-Fi hop before a long path: 40 Mbit/s, 1 % loss, 84 ms"
    ),
    path!(
        "transatlantic",
        "Western Europe to the east of North America: 200 Mbit/s, 90 ms, 0.01 % loss"
    ),
    path!(
        "triangle",
        "Three sites: 20 Mbit/s, 162 ms, 1 % loss; over the third site 132 ms, 0.1 %"
    ),
    path!(
        "no-gain",
        "Three sites, the direct link is the best: 20 Mbit/s, 82 ms"
    ),
    path!(
        "brownout",
        "Three sites, and the direct link is bad from 20 s to 320 s: 20 Mbit/s, 82 ms"
    ),
    path!(
        "outage",
        "Three sites, and nothing passes the direct link from 20 s to 80 s: 20 Mbit/s, 82 ms"
    ),
    path!(
        "mesh5",
        "Five sites joined by ten links: 20 Mbit/s, 406 ms, 0.1 % loss on the direct link"
    ),
    path!(
        "mesh10",
        "Ten sites joined by 45 links without loss: 20 Mbit/s, 372 ms"
    ),
    path!(
        "two-uplinks",
        "A ship with VSAT and LTE, each with outages: 10/2 Mbit/s, 642 ms"
    ),
    path!(
        "hasegawa",
        "Hasegawa's testbed: 8 Mbit/s down, 32 kbit/s up, no delay"
    ),
    path!(
        "geo-ahead",
        "GEO satellite access without loss, 20/2 Mbit/s, 600 ms, and sending ahead"
    ),
    path!(
        "hasegawa-oversized",
        "Hasegawa's testbed with an upstream queue of 200 packets and oversized segments"
    ),
    path!(
        "hasegawa-ahead",
        "Hasegawa's testbed with 500 ms, a client window of 64 KB, and sending ahead (TGW)"
    ),
    path!(
        "tam",
        "Tam's testbed: 4 Mbit/s down, 100 kbit/s up, queues of 20 packets"
    ),
    path!(
        "tam-cable",
        "Tam's cable network: one downloads, 19 send over 768 kbit/s up, 22 ms"
    ),
];
