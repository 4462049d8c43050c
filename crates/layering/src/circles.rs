//! Arrows between sibling modules, and the circles they form.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use serde::Serialize;

use crate::resolve::modules_of;
use crate::tree::{ModuleId, Tree};

/// One use of a sibling module, or of something below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Arrow {
    /// The module that uses, by its path from the crate's root, as in `relay::opening`.
    pub from: String,
    /// The module that is used; a child of the same parent.
    pub to: String,
    /// The file with the first use. It may belong to a module below `from`.
    pub file: PathBuf,
    /// The line of the first use, from 1.
    pub line: usize,
    /// The path that is written there.
    pub path: String,
}

/// Sibling modules each of which uses the next, and the last the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Circle {
    /// The uses in their order. The first starts at the module whose name sorts first.
    pub arrows: Vec<Arrow>,
}

/// The uses between the children of one parent; for each pair of modules, the first use.
type Siblings = BTreeMap<(ModuleId, ModuleId), Arrow>;

/// The circles of a crate: for each arrow that lies on a circle, the shortest one through it,
/// each once.
#[must_use]
pub fn circles(tree: &Tree) -> Vec<Circle> {
    let mut found: Vec<Circle> = Vec::new();
    for siblings in arrows(tree).values() {
        for &(from, to) in siblings.keys() {
            let Some(way) = shortest_way(siblings, to, from) else {
                continue;
            };
            let mut arrows: Vec<Arrow> = std::iter::once((from, to))
                .chain(way.windows(2).map(|pair| (pair[0], pair[1])))
                .map(|pair| siblings[&pair].clone())
                .collect();
            let first = (0..arrows.len())
                .min_by_key(|&at| &arrows[at].from)
                .unwrap_or_default();
            arrows.rotate_left(first);
            let circle = Circle { arrows };
            if !found.contains(&circle) {
                found.push(circle);
            }
        }
    }
    found
}

/// All arrows of a crate, by the parent of the modules that they join.
fn arrows(tree: &Tree) -> BTreeMap<ModuleId, Siblings> {
    let mut all: BTreeMap<ModuleId, Siblings> = BTreeMap::new();
    for (at, module) in tree.modules.iter().enumerate() {
        let from = ModuleId(at);
        let imports = module.imports.iter().map(|use_| (&use_.path, use_.line));
        let mentions = module.mentions.iter().map(|path| (&path.path, path.line));
        for (path, line) in imports.chain(mentions) {
            for to in modules_of(tree, from, path) {
                let Some((parent, from, to)) = siblings(tree, from, to) else {
                    continue;
                };
                let arrow = Arrow {
                    from: tree.module(from).path.join("::"),
                    to: tree.module(to).path.join("::"),
                    file: module.file.clone(),
                    line,
                    path: path.join("::"),
                };
                let known = all.entry(parent).or_default().entry((from, to));
                let known = known.or_insert_with(|| arrow.clone());
                if (&arrow.file, arrow.line) < (&known.file, known.line) {
                    *known = arrow;
                }
            }
        }
    }
    all
}

/// The parent at which the ways to two modules part, and its children on either way. None if one
/// of the modules contains the other: a child may use its parents, and a parent its children.
fn siblings(tree: &Tree, from: ModuleId, to: ModuleId) -> Option<(ModuleId, ModuleId, ModuleId)> {
    let from = ancestors(tree, from);
    let to = ancestors(tree, to);
    let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    Some((
        *from.get(same.checked_sub(1)?)?,
        *from.get(same)?,
        *to.get(same)?,
    ))
}

/// The modules from the root to `module`.
fn ancestors(tree: &Tree, module: ModuleId) -> Vec<ModuleId> {
    let mut way: Vec<ModuleId> =
        std::iter::successors(Some(module), |&at| tree.module(at).parent).collect();
    way.reverse();
    way
}

/// The shortest way along the arrows, with both ends.
fn shortest_way(siblings: &Siblings, from: ModuleId, to: ModuleId) -> Option<Vec<ModuleId>> {
    let mut before: BTreeMap<ModuleId, ModuleId> = BTreeMap::new();
    let mut seen = BTreeSet::from([from]);
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        if at == to {
            let mut way: Vec<ModuleId> =
                std::iter::successors(Some(to), |at| before.get(at).copied()).collect();
            way.reverse();
            return Some(way);
        }
        for &(_, next) in siblings
            .range((at, ModuleId(0))..=(at, ModuleId(usize::MAX)))
            .map(|(pair, _)| pair)
        {
            if seen.insert(next) {
                before.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}
