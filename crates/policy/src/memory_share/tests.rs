use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Sessions whose buffers grow as the kernel's do: with the data that has moved, at most twofold
/// between two measurements.
struct Model {
    budget: u64,
    queue_budget: u64,
    directions: Vec<DirectionMemory>,
    level: u64,
    sessions: u64,
}

impl Model {
    fn new(budget: u64) -> Self {
        Self {
            budget,
            queue_budget: u64::MAX,
            directions: Vec::new(),
            level: u64::MAX,
            sessions: 0,
        }
    }

    fn share(&self) -> MemoryShare {
        let reserved: u64 = self.directions.iter().map(|one| one.reservation()).sum();
        MemoryShare {
            budget: self.budget,
            queue_budget: self.queue_budget,
            aside: 0,
            reserved: reserved + self.sessions * EACH_SESSION,
            sessions: self.sessions,
            level: self.level,
        }
    }

    fn open(&mut self) -> bool {
        if !self.share().has_room_for_session() {
            return false;
        }
        self.sessions += 1;
        for _ in 0..2 {
            // As Linux begins, before any data has moved.
            self.directions.push(DirectionMemory {
                is_bounded: false,
                ..DirectionMemory::default().with_limits(STARTING)
            });
            self.look(self.directions.len() - 1);
        }
        true
    }

    fn look(&mut self, place: usize) {
        self.level = self.share().next_level();
        let direction = self.directions[place];
        let changed = match self.share().bound(&direction) {
            Bounding::Keep => direction,
            Bounding::Free => DirectionMemory {
                receive_limit: direction.receive_limit.max(STARTING),
                send_limit: direction.send_limit.max(STARTING),
                is_bounded: false,
                ..direction
            },
            Bounding::Freeze => DirectionMemory {
                is_bounded: true,
                ..direction
            },
            Bounding::Limit(each) => direction.with_limits(each),
        };
        self.directions[place] = changed;
    }

    /// The direction moves data. With `fills`, its peer takes no data, and the buffers become full.
    fn act(&mut self, place: usize, fills: bool) {
        let direction = &mut self.directions[place];
        direction.is_active = true;
        if !direction.is_bounded {
            direction.receive_limit *= 2;
            direction.send_limit *= 2;
        }
        let most = direction.limits()
            + match direction.is_bounded {
                true => held_between(direction.receive_limit),
                false => 0,
            };
        direction.held = if fills { most } else { 0 };
        self.look(place);
    }

    fn held(&self) -> u64 {
        let queues: u64 = self.directions.iter().map(|one| one.held).sum();
        queues + self.sessions * EACH_SESSION
    }
}

#[test]
fn one_bulk_direction_among_many_still_ones_has_more_than_an_even_share() {
    let mut model = Model::new(128 * MIB);
    for _ in 0..1000 {
        assert!(model.open());
        for place in 0..model.directions.len() {
            model.directions[place].is_active = false;
            model.look(place);
        }
    }
    for _ in 0..6 {
        model.act(0, false);
    }
    let bulk = model.directions[0];
    assert!(bulk.receive_limit >= MIB, "{bulk:?}");
}

#[test]
fn two_that_compete_have_about_the_same() {
    let mut model = Model::new(64 * MIB);
    model.open();
    for _ in 0..20 {
        model.act(0, false);
    }
    model.open();
    // They take turns in growing and giving, so the mean is compared.
    let mut sums = [0, 0];
    for _ in 0..400 {
        for (sum, place) in sums.iter_mut().zip([0, 2]) {
            model.act(place, false);
            *sum += model.directions[place].reservation();
        }
    }
    let [old, new] = sums;
    assert!(old < new * 2 && new < old * 2, "{old} {new}");
}

#[test]
fn still_directions_have_less_the_more_there_are_and_never_nothing() {
    let mut before = u64::MAX;
    for sessions in [1, 10, 100, 1000, 10_000, u64::MAX] {
        let share = MemoryShare {
            budget: 128 * MIB,
            queue_budget: u64::MAX,
            aside: 0,
            reserved: 0,
            sessions,
            level: u64::MAX,
        };
        let limit = share.still_limit();
        assert!(limit <= before && (LEAST..=STARTING).contains(&limit));
        before = limit;
    }
    assert_eq!(before, LEAST);
}

#[test]
fn queues_are_bounded_long_before_the_budget_and_sessions_are_not_shed_for_them() {
    let mut share = MemoryShare {
        budget: 1024 * MIB,
        queue_budget: 32 * MIB,
        reserved: 100 * LEAST_OF_SESSION,
        aside: 40 * MIB,
        sessions: 100,
        level: u64::MAX,
    };
    share.reserved += share.aside;
    assert_eq!((share.queues(), share.is_short()), (0, false));
    share.reserved += 9 * MIB;
    assert!(share.is_short() && !share.is_watched());
    assert_eq!(share.next_level(), 4 * MIB);
    let still = DirectionMemory {
        receive_limit: STARTING,
        send_limit: STARTING,
        ..DirectionMemory::default()
    };
    assert!(matches!(share.bound(&still), Bounding::Limit(_)));
    share.reserved += 24 * MIB;
    assert!(share.is_watched() && share.has_room_for_session());
    // No direction grows any more.
    let active = DirectionMemory {
        is_active: true,
        is_bounded: true,
        ..still
    };
    assert_eq!(share.bound(&active), Bounding::Keep);
}

#[test]
fn directions_with_large_buffers_move_large_pieces() {
    let sizes = [1, 64 << 10, MIB, 2 * MIB, 4 * MIB, 8 * MIB, u64::MAX];
    assert_eq!(sizes.map(pieces), [1, 1, 2, 4, 8, 16, 16]);
    assert_eq!(
        [1, 100 << 10, 2 * MIB].map(held_between),
        [1, 64 << 10, 256 << 10]
    );
    // Both buffers and the pieces fit into the level to which a direction comes down.
    for level in [64 << 10, 320 << 10, 3 * MIB, 20 * MIB, 100 * MIB] {
        let share = MemoryShare {
            budget: 1024 * MIB,
            queue_budget: u64::MAX,
            aside: 0,
            reserved: 600 * MIB,
            sessions: 10,
            level,
        };
        let direction = DirectionMemory {
            is_active: true,
            ..DirectionMemory::default().with_limits(200 * MIB)
        };
        let Bounding::Limit(each) = share.bound(&direction) else {
            panic!("{level}");
        };
        let bounded = direction.with_limits(each).reservation();
        assert!(
            bounded <= level && bounded > level / 5 * 4,
            "{level} {bounded}"
        );
    }
}

proptest! {
    /// In every sequence of events, even if no peer takes any data, the held data is within the
    /// budget.
    #[test]
    fn the_budget_holds(
        budget in 16 * MIB..1024 * MIB,
        queue_budget in 8 * MIB..1024 * MIB,
        steps in proptest::collection::vec((0_u8..4, any::<prop::sample::Index>(), any::<bool>()), 1..2000),
    ) {
        let mut model = Model::new(budget);
        model.queue_budget = queue_budget;
        for (kind, which, fills) in steps {
            let count = model.directions.len();
            if kind == 0 || count == 0 {
                model.open();
            } else {
                let place = which.index(count);
                match kind {
                    1 => model.act(place, fills),
                    2 => model.look(place),
                    _ => {
                        model.directions[place].is_active = false;
                        model.look(place);
                    }
                }
            }
            prop_assert!(model.held() <= budget, "{} of {budget}", model.held());
            let queues = model.held().saturating_sub(model.sessions * LEAST_OF_SESSION);
            prop_assert!(queues <= queue_budget, "{queues} of {queue_budget}");
        }
    }
}

#[test]
fn an_open_window_does_not_make_memory_short() {
    let share = |reserved, queue_budget| MemoryShare {
        budget: 400 * MIB,
        queue_budget,
        reserved,
        aside: 0,
        sessions: 0,
        level: u64::MAX,
    };
    // A quarter of the budget is 100 MiB, and a window of 8 MiB may come to use 32 MiB.
    assert!(share(68 * MIB, u64::MAX).has_room_for_window(8 * MIB));
    assert!(!share(69 * MIB, u64::MAX).has_room_for_window(8 * MIB));
    assert!(!share(0, 64 * MIB).has_room_for_window(8 * MIB));
    assert!(!share(0, u64::MAX).has_room_for_window(u64::MAX));
}
