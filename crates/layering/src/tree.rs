//! The tree of modules of one crate, with the names each module defines, imports and mentions.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// A module's place in [`Tree::modules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub usize);

/// The root module of a crate.
pub const ROOT: ModuleId = ModuleId(0);

/// All modules of one crate, the root first.
#[derive(Debug, Default)]
pub struct Tree {
    /// The modules; [`ModuleId`] counts in this list.
    pub modules: Vec<Module>,
}

/// A module, in a file of its own or inline.
#[derive(Debug)]
pub struct Module {
    /// Names of the modules from the crate's root to this one; empty for the root.
    pub path: Vec<String>,
    /// The file in which it is written.
    pub file: PathBuf,
    /// The module that declares it; `None` for the root.
    pub parent: Option<ModuleId>,
    /// The modules that it declares, by name.
    pub children: BTreeMap<String, ModuleId>,
    /// The other items that it defines, by name, with where they can be named.
    pub items: BTreeMap<String, Visibility>,
    /// Its `use` declarations, one for each leaf.
    pub imports: Vec<Import>,
    /// The other paths in it.
    pub mentions: Vec<Mention>,
}

/// Where a name can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// In its module and the modules below.
    Private,
    /// In its module's parent and the modules below.
    Super,
    /// In the whole crate at least.
    Crate,
}

/// One leaf of a `use` declaration.
#[derive(Debug)]
pub struct Import {
    /// The name it gives; `None` for a glob.
    pub name: Option<String>,
    /// What it imports; for a glob, the module.
    pub path: Vec<String>,
    /// Who can use the name.
    pub visibility: Visibility,
    /// Its line in the module's file, from 1.
    pub line: usize,
}

/// A path in an expression, a type, a pattern, an attribute or a macro's arguments.
#[derive(Debug)]
pub struct Mention {
    /// The path's segments.
    pub path: Vec<String>,
    /// Its line in the module's file, from 1.
    pub line: usize,
}

impl Tree {
    /// The module with this number.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// Whether `module` is `ancestor` or lies below it.
    #[must_use]
    pub fn is_within(&self, module: ModuleId, ancestor: ModuleId) -> bool {
        self.module(module)
            .path
            .starts_with(&self.module(ancestor).path)
    }
}
