//! Finds the modules that a path leads through and ends in.
//!
//! Names are looked up as the language does it: what a module defines and imports by name comes
//! before what a glob brings. A path that leads out of the crate leads through no module.

use std::collections::BTreeSet;

use crate::tree::{ModuleId, ROOT, Tree, Visibility};

/// What a path leads to.
struct Reached {
    /// All modules on the way, with `module`.
    through: BTreeSet<ModuleId>,
    /// The module itself, or the one that defines the item.
    module: ModuleId,
    /// Whether the path leads to an item of the module.
    item: bool,
}

/// The modules that `path`, written in `from`, leads through: those it names, those in which a
/// name on the way is re-exported, and the one that defines what it ends in.
#[must_use]
pub fn modules_of(tree: &Tree, from: ModuleId, path: &[String]) -> BTreeSet<ModuleId> {
    let mut resolver = Resolver {
        tree,
        open: Vec::new(),
    };
    resolver
        .follow(from, path)
        .into_iter()
        .flat_map(|reached| reached.through)
        .collect()
}

struct Resolver<'t> {
    tree: &'t Tree,
    /// The names that are being looked up; globs can lead back to them.
    open: Vec<(ModuleId, String)>,
}

impl Resolver<'_> {
    fn follow(&mut self, from: ModuleId, path: &[String]) -> Vec<Reached> {
        let mut module = from;
        let mut through = BTreeSet::new();
        for (at, name) in path.iter().enumerate() {
            let next = match name.as_str() {
                "crate" => Some(ROOT),
                "self" => Some(module),
                "super" => self.tree.module(module).parent,
                _ => {
                    let mut found = self.find(from, module, name);
                    for reached in &mut found {
                        reached.through.extend(&through);
                    }
                    if at + 1 == path.len() {
                        return found;
                    }
                    // The rest of a path behind an item, as in `Type::function`, belongs to that item.
                    let Some(inner) = found.iter().position(|reached| !reached.item) else {
                        return found;
                    };
                    let inner = found.swap_remove(inner);
                    through = inner.through;
                    Some(inner.module)
                }
            };
            let Some(next) = next else {
                return Vec::new();
            };
            module = next;
            through.insert(module);
        }
        vec![Reached {
            through,
            module,
            item: false,
        }]
    }

    /// What `name` is in `module`, as seen from `viewer`.
    fn find(&mut self, viewer: ModuleId, module: ModuleId, name: &str) -> Vec<Reached> {
        let tree = self.tree;
        let this = tree.module(module);
        let mut found = Vec::new();
        if let Some(&child) = this.children.get(name) {
            found.push(Reached {
                through: BTreeSet::from([child]),
                module: child,
                item: false,
            });
        }
        if let Some(&visibility) = this.items.get(name)
            && self.is_visible(viewer, module, visibility)
        {
            found.push(Reached {
                through: BTreeSet::from([module]),
                module,
                item: true,
            });
        }
        let key = (module, name.to_owned());
        if self.open.contains(&key) {
            return found;
        }
        self.open.push(key);
        for import in &this.imports {
            if import.name.as_deref() == Some(name)
                && self.is_visible(viewer, module, import.visibility)
            {
                found.extend(self.follow(module, &import.path));
            }
        }
        if found.is_empty() {
            for import in &this.imports {
                if import.name.is_some() || !self.is_visible(viewer, module, import.visibility) {
                    continue;
                }
                for glob in self.follow(module, &import.path) {
                    if glob.item {
                        continue;
                    }
                    for mut reached in self.find(module, glob.module, name) {
                        reached.through.extend(&glob.through);
                        found.push(reached);
                    }
                }
            }
        }
        self.open.pop();
        for reached in &mut found {
            reached.through.insert(module);
        }
        found
    }

    fn is_visible(&self, viewer: ModuleId, module: ModuleId, visibility: Visibility) -> bool {
        let scope = match visibility {
            Visibility::Private => module,
            Visibility::Super => self.tree.module(module).parent.unwrap_or(ROOT),
            Visibility::Crate => ROOT,
        };
        self.tree.is_within(viewer, scope)
    }
}
