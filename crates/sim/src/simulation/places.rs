//! The places that have events: numbers for the event queue, in the order in which ties are
//! resolved.

use crate::scenario::ScenarioError;

const KINDS: usize = 9;

/// The numbers of the places: directions of links, then receivers, senders, relays, the choice of overlay
/// routes, flows, sources of traffic, policies of relays, reassembly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// The end of the numbers of each kind.
    ends: [u32; KINDS],
}

/// The kind of a place, and its index within the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Link(u32),
    Receiver(u32),
    Sender(u32),
    Relay(u32),
    Overlay,
    Flow(u32),
    Traffic(u32),
    Control(u32),
    Reassembly,
}

impl Places {
    /// Places with this count of each kind.
    pub(super) fn new(counts: [usize; KINDS]) -> Result<Self, ScenarioError> {
        let mut sum: usize = 0;
        let mut ends = [0; KINDS];
        for (end, count) in ends.iter_mut().zip(counts) {
            sum = sum.saturating_add(count);
            *end = u32::try_from(sum).map_err(|_| ScenarioError::TooMany { count: sum })?;
        }
        Ok(Self { ends })
    }

    pub(super) const fn count(&self) -> u32 {
        self.ends[KINDS - 1]
    }

    pub(super) const fn links(&self) -> u32 {
        self.ends[0]
    }

    pub(super) const fn receiver(&self, leg: u32) -> u32 {
        self.ends[0] + leg
    }

    pub(super) const fn sender(&self, leg: u32) -> u32 {
        self.ends[1] + leg
    }

    pub(super) const fn relay(&self, relay: u32) -> u32 {
        self.ends[2] + relay
    }

    pub(super) const fn overlay(&self) -> u32 {
        self.ends[3]
    }

    pub(super) const fn flow(&self, flow: u32) -> u32 {
        self.ends[4] + flow
    }

    pub(super) const fn traffic(&self, source: u32) -> u32 {
        self.ends[5] + source
    }

    pub(super) const fn control(&self, relay: u32) -> u32 {
        self.ends[6] + relay
    }

    pub(super) const fn reassembly(&self) -> u32 {
        self.ends[7]
    }

    #[inline]
    pub(super) const fn what(&self, place: u32) -> Place {
        let [
            links,
            receivers,
            senders,
            relays,
            overlay,
            flows,
            traffic,
            controls,
            _,
        ] = self.ends;
        if place < links {
            Place::Link(place)
        } else if place < receivers {
            Place::Receiver(place - links)
        } else if place < senders {
            Place::Sender(place - receivers)
        } else if place < relays {
            Place::Relay(place - senders)
        } else if place < overlay {
            Place::Overlay
        } else if place < flows {
            Place::Flow(place - overlay)
        } else if place < traffic {
            Place::Traffic(place - flows)
        } else if place < controls {
            Place::Control(place - traffic)
        } else {
            Place::Reassembly
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_stands_for_one_thing() {
        let places = Places::new([4, 3, 3, 2, 1, 1, 2, 2, 1]).unwrap();
        let all: Vec<Place> = (0..places.count())
            .map(|place| places.what(place))
            .collect();
        assert_eq!(all.len(), 19);
        assert_eq!(all[3], Place::Link(3));
        assert_eq!(all[places.receiver(2) as usize], Place::Receiver(2));
        assert_eq!(all[places.sender(0) as usize], Place::Sender(0));
        assert_eq!(all[places.relay(1) as usize], Place::Relay(1));
        assert_eq!(all[places.overlay() as usize], Place::Overlay);
        assert_eq!(all[places.flow(0) as usize], Place::Flow(0));
        assert_eq!(all[places.traffic(1) as usize], Place::Traffic(1));
        assert_eq!(all[places.control(1) as usize], Place::Control(1));
        assert_eq!(all[places.reassembly() as usize], Place::Reassembly);
        assert!(Places::new([usize::MAX, 1, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
