//! The sessions or negotiations of a thread by key. A key remains harmless after its session has ended.
//!
//! An event of epoll or a timer may arrive for a session that has just ended, when its slot already has
//! another session. Each slot counts its users, and a key contains this count. The table has no value for a
//! key with an old count.

/// Bits of a key for the slot, which limit the number of slots; the other 31 bits are the count.
const PLACE_BITS: u32 = 31;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Counts wrap at 31 bits, so that a key has two bits to spare.
const GENERATION_MASK: u32 = (1 << 31) - 1;

/// The key of one session of one thread, used again only after 2³¹ users of its slot. Below 2⁶².
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u64);

impl Key {
    /// The key as a number below 2⁶².
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The key with this number.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The slot of the table.
    #[allow(clippy::cast_possible_truncation)]
    pub const fn slot(self) -> usize {
        (self.0 & PLACE_MASK) as usize
    }

    const fn new(place: usize, generation: u32) -> Self {
        Self((generation as u64) << PLACE_BITS | place as u64 & PLACE_MASK)
    }
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    content: Option<T>,
}

/// Values by key.
#[derive(Debug)]
pub struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The key that the next [`insert`](Self::insert) gives.
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(place) => {
                let place = *place as usize;
                Key::new(place, self.places[place].generation)
            }
            None => Key::new(self.places.len(), 0),
        }
    }

    /// Adds a value.
    pub fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        if self.free.pop().is_some() {
            self.places[key.slot()].content = Some(value);
        } else {
            self.places.push(Place {
                generation: 0,
                content: Some(value),
            });
        }
        key
    }

    /// The value of a key, if it still exists.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.slot())?;
        let is_current = Key::new(key.slot(), place.generation) == key;
        place.content.as_mut().filter(|_| is_current)
    }

    /// Number of slots, used or free.
    pub const fn places(&self) -> usize {
        self.places.len()
    }

    /// The key of the value in a slot, if there is one.
    pub fn key_at(&self, place: usize) -> Option<Key> {
        let taken = self.places.get(place)?;
        taken.content.as_ref()?;
        Some(Key::new(place, taken.generation))
    }

    /// The value in a slot, if there is one.
    pub fn at_place(&mut self, place: usize) -> Option<&mut T> {
        self.places.get_mut(place)?.content.as_mut()
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places
            .iter()
            .filter_map(|place| place.content.as_ref())
    }

    /// The values from this slot on, each with its slot and its key.
    pub fn entries_from(&self, first: usize) -> impl Iterator<Item = (usize, Key, &T)> {
        let places = self.places.iter().enumerate().skip(first);
        places.filter_map(|(index, place)| {
            let content = place.content.as_ref()?;
            Some((index, Key::new(index, place.generation), content))
        })
    }

    /// Removes a value; the table has no value for its key from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        let place = &mut self.places[key.slot()];
        place.generation = place.generation.wrapping_add(1) & GENERATION_MASK;
        #[allow(clippy::cast_possible_truncation)]
        self.free.push(key.slot() as u32);
        place.content.take()
    }

    /// All values, without their keys.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.places.into_iter().filter_map(|place| place.content)
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        for place in 0..self.places.len() {
            if let Some(key) = self.key_at(place) {
                self.remove(key);
            }
        }
    }

    /// Number of values.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_finds_nothing_in_a_place_used_again() {
        let mut table = Table::new();
        let first = table.insert("first");
        let other = table.insert("other");
        assert_eq!(table.remove(first), Some("first"));
        assert_eq!(table.remove(first), None);
        let announced = table.next_key();
        let second = table.insert("second");
        assert_eq!(announced, second);
        assert_eq!(first.slot(), second.slot());
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.get_mut(second), Some(&mut "second"));
        assert_eq!(table.get_mut(other), Some(&mut "other"));
        assert_eq!(table.len(), 2);
        let entries: Vec<_> = table.entries_from(0).collect();
        assert_eq!(entries, [(0, second, &"second"), (1, other, &"other")]);
        assert_eq!(table.entries_from(1).count(), 1);
        assert_eq!(table.entries_from(5).count(), 0);
        assert!(second.number() < 1 << 62);
        assert_eq!(Key::from_number(second.number()), second);
    }

    #[test]
    fn a_key_from_nowhere_finds_nothing() {
        let mut table: Table<()> = Table::new();
        assert_eq!(table.get_mut(Key::from_number(u64::MAX)), None);
        assert_eq!(table.remove(Key::from_number(7)), None);
    }
}
