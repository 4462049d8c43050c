//! One session: from its beginning, over failed routes, to its end.

use midspan_policy::overlay::{Route, RouteLeg};
use midspan_units::ByteSize;

use crate::perfect_knowledge::Best;

/// A session.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its pair of ingress and exit.
    pub pair: usize,
    /// What it carries.
    pub size: ByteSize,
    /// When it began, in seconds.
    pub began: f64,
    /// The routes that have failed.
    pub tried: Vec<Route>,
    /// The best routes at its beginning, for 100 KB and 1 MB, if it is compared.
    pub best: Option<[Best; 2]>,
    /// Its route, when it has one that works.
    pub running: Option<Running>,
}

/// The route of a session.
#[derive(Debug, Clone)]
pub struct Running {
    /// The nodes, the ingress first.
    pub stops: Vec<usize>,
    /// The legs in the direction of the data.
    pub legs: Vec<RouteLeg>,
    /// When it began on this route, in seconds.
    pub since: f64,
    /// How long it takes if no node is overloaded, in seconds.
    pub needs: f64,
    /// The clocks of its transit nodes at its beginning.
    pub clocks: Vec<f64>,
}

impl Running {
    /// The transit nodes.
    pub fn transit(&self) -> &[usize] {
        let last = self.stops.len().saturating_sub(1);
        self.stops.get(1..last).unwrap_or(&[])
    }
}

/// Sessions by their number; numbers are used again.
#[derive(Debug, Default)]
pub struct Sessions {
    places: Vec<Option<Session>>,
    free: Vec<u32>,
}

impl Sessions {
    /// Adds a session. There is room for 2³² sessions at the same time.
    pub fn add(&mut self, session: Session) -> u32 {
        match self.free.pop() {
            Some(place) => {
                if let Some(free) = self.place(place) {
                    *free = Some(session);
                }
                place
            }
            None => {
                self.places.push(Some(session));
                u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
            }
        }
    }

    /// A session.
    pub fn get_mut(&mut self, place: u32) -> Option<&mut Session> {
        self.place(place)?.as_mut()
    }

    /// Removes a session.
    pub fn remove(&mut self, place: u32) -> Option<Session> {
        let session = self.place(place)?.take();
        self.free.extend(session.is_some().then_some(place));
        session
    }

    fn place(&mut self, place: u32) -> Option<&mut Option<Session>> {
        self.places.get_mut(usize::try_from(place).ok()?)
    }
}
