//! Random trees of modules: a tree that has an order is never reported, and one arrow
//! against the order is found.

#![allow(clippy::unwrap_used)] // A test may panic.

use midspan_layering::circles::circles;
use midspan_layering::load::load;
use proptest::prelude::*;

/// A tree of modules. The root has number 0. Each other module `n` is the child of a module with a smaller
/// number. Every module defines a struct with its number and re-exports everything public of its children.
#[derive(Debug, Clone)]
struct Modules {
    /// For each module but the root, its parent.
    parents: Vec<usize>,
    /// Who uses whom, and in which of the ways to write it.
    uses: Vec<(usize, usize, Style)>,
}

#[derive(Debug, Clone, Copy)]
enum Style {
    /// `crate::m1::m3::S3`
    Absolute,
    /// `super::super::m3::S3`
    Relative,
    /// `super::S3`, by a re-export of the parent that both have.
    Reexported,
    /// As `Relative`, in a function's body.
    InFunction,
}

fn modules() -> impl Strategy<Value = Modules> {
    let style = prop_oneof![
        Just(Style::Absolute),
        Just(Style::Relative),
        Just(Style::Reexported),
        Just(Style::InFunction),
    ];
    (2..12_usize).prop_flat_map(move |count| {
        let parents: Vec<_> = (1..count).map(|module| 0..module).collect();
        let uses = prop::collection::vec((1..count, 1..count, style.clone()), 0..30);
        (parents, uses).prop_map(|(parents, uses)| Modules { parents, uses })
    })
}

impl Modules {
    /// The modules from the root to `module`, without the root.
    fn way(&self, module: usize) -> Vec<usize> {
        let mut way: Vec<usize> = std::iter::successors(Some(module), |&at| {
            Some(self.parents[at - 1]).filter(|&parent| parent != 0)
        })
        .collect();
        way.reverse();
        way
    }

    /// The siblings at which the ways to two modules part. `None` if one contains the other.
    fn siblings(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let (from, to) = (self.way(from), self.way(to));
        from.into_iter().zip(to).find(|(a, b)| a != b)
    }

    /// The crate's text, with all modules inline.
    fn text(&self) -> String {
        self.module(0)
    }

    fn module(&self, number: usize) -> String {
        let mut text = format!("pub struct S{number};\n");
        for &(from, to, style) in &self.uses {
            if from == number {
                text += &self.used(from, to, style);
            }
        }
        for child in (1..=self.parents.len()).filter(|&at| self.parents[at - 1] == number) {
            text += &format!(
                "pub use m{child}::*;\npub mod m{child} {{\n{}}}\n",
                self.module(child)
            );
        }
        text
    }

    fn used(&self, from: usize, to: usize, style: Style) -> String {
        let (own, other) = (self.way(from), self.way(to));
        let same = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
        let up = "super::".repeat(own.len() - same);
        let down = |way: &[usize]| way.iter().map(|at| format!("m{at}::")).collect::<String>();
        let relative = format!("self::{up}{}S{to}", down(&other[same..]));
        match style {
            Style::Absolute => format!("fn f() -> crate::{}S{to} {{}}\n", down(&other)),
            Style::Relative => format!("use {relative};\n"),
            Style::Reexported => format!("use self::{up}S{to};\n"),
            Style::InFunction => format!("fn g() {{ use {relative} as Other; }}\n"),
        }
    }

    fn circles(&self) -> Vec<Vec<(String, String)>> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("lib.rs");
        std::fs::write(&root, self.text()).unwrap();
        circles(&load(&root).unwrap())
            .into_iter()
            .map(|circle| {
                let arrows = circle.arrows.into_iter();
                arrows.map(|arrow| (arrow.from, arrow.to)).collect()
            })
            .collect()
    }
}

proptest! {
    #[test]
    fn only_what_goes_against_the_order_is_a_circle(mut modules in modules(), choice: prop::sample::Index) {
        // Siblings are used downwards in their numbers only.
        let tree = modules.clone();
        modules.uses.retain(|&(from, to, _)| tree.siblings(from, to).is_none_or(|(a, b)| a > b));
        prop_assert_eq!(modules.circles(), Vec::<Vec<_>>::new(), "{}", modules.text());

        // One arrow the other way round closes a circle with the one it reverses.
        let apart: Vec<_> = modules.uses.iter().copied()
            .filter(|&(from, to, _)| tree.siblings(from, to).is_some()).collect();
        if apart.is_empty() {
            return Ok(());
        }
        let (from, to, style) = apart[choice.index(apart.len())];
        modules.uses.push((to, from, style));
        let circles = modules.circles();
        prop_assert!(!circles.is_empty(), "{}", modules.text());
        for circle in circles {
            prop_assert!(circle.len() >= 2);
            for (at, (_, to)) in circle.iter().enumerate() {
                prop_assert_eq!(to, &circle[(at + 1) % circle.len()].0);
            }
        }
    }
}
