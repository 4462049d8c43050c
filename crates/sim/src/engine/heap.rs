//! A heap of (time, place), four children to a node: half as deep as a binary one, and the four
//! lie in one cache line.

/// Smallest first.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    keys: Vec<u128>,
}

const CHILDREN: usize = 4;

impl Heap {
    /// The smallest; the largest possible where there is none.
    #[inline]
    pub(crate) fn smallest(&self) -> u128 {
        self.keys.first().copied().unwrap_or(u128::MAX)
    }

    pub(crate) fn push(&mut self, key: u128) {
        let mut index = self.keys.len();
        self.keys.push(key);
        while index > 0 {
            let parent = (index - 1) / CHILDREN;
            if self.keys[parent] <= key {
                break;
            }
            self.keys[index] = self.keys[parent];
            index = parent;
        }
        self.keys[index] = key;
    }

    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.keys.pop()
            && !self.keys.is_empty()
        {
            self.replace_smallest(last);
        }
    }

    /// Puts a key in the place of the smallest one; the heap must not be empty.
    pub(crate) fn replace_smallest(&mut self, key: u128) {
        let count = self.keys.len();
        let mut index = 0;
        loop {
            let first = index * CHILDREN + 1;
            if first >= count {
                break;
            }
            let least = first + least_of(&self.keys[first..count.min(first + CHILDREN)]);
            if key <= self.keys[least] {
                break;
            }
            self.keys[index] = self.keys[least];
            index = least;
        }
        self.keys[index] = key;
    }
}

/// Which of at most four keys is the smallest.
#[inline]
fn least_of(keys: &[u128]) -> usize {
    if let [first, second, third, fourth] = keys {
        // Without branches: the order of the keys cannot be predicted.
        let left = usize::from(second < first);
        let right = 2 + usize::from(fourth < third);
        let (least_left, least_right) = (first.min(second), third.min(fourth));
        return if least_right < least_left {
            right
        } else {
            left
        };
    }
    let mut least = 0;
    for (index, key) in keys.iter().enumerate().skip(1) {
        if *key < keys[least] {
            least = index;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Debug, Clone)]
    enum Operation {
        Push(u16),
        Pop,
        Replace(u16),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            2 => any::<u16>().prop_map(Operation::Push),
            1 => Just(Operation::Pop),
            1 => any::<u16>().prop_map(Operation::Replace),
        ]
    }

    proptest! {
        #[test]
        fn the_smallest_is_on_top(operations in proptest::collection::vec(operation(), 0..400)) {
            let mut heap = Heap::default();
            let mut model = BTreeSet::new();
            for operation in operations {
                match operation {
                    Operation::Push(key) => {
                        if model.insert(u128::from(key)) {
                            heap.push(u128::from(key));
                        }
                    }
                    Operation::Pop => {
                        heap.pop();
                        model.pop_first();
                    }
                    Operation::Replace(key) => {
                        if !model.is_empty() && !model.contains(&u128::from(key)) {
                            heap.replace_smallest(u128::from(key));
                            model.pop_first();
                            model.insert(u128::from(key));
                        }
                    }
                }
                let smallest = model.first().copied().unwrap_or(u128::MAX);
                prop_assert_eq!(heap.smallest(), smallest);
            }
        }
    }
}
