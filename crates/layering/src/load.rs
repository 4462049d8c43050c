//! Builds the tree of modules from source files, along their `mod` declarations.

use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta};

use crate::collect::{attributes, collect, for_tests};
use crate::error::Error;
use crate::tree::{Import, Module, ModuleId, Tree, Visibility};

/// Reads the crate whose root module is the file `root`.
///
/// # Errors
///
/// A file cannot be read or is not valid Rust, or a declared module has no file.
pub fn load(root: &Path) -> Result<Tree, Error> {
    let mut tree = Tree::default();
    let items = read(root)?.items;
    let directory = root.parent().unwrap_or(Path::new(".")).to_owned();
    add(
        &mut tree,
        New {
            path: Vec::new(),
            parent: None,
            file: root.to_owned(),
            directory: directory.clone(),
            paths_from: directory,
        },
        &items,
    )?;
    Ok(tree)
}

/// A module that is about to be added.
struct New {
    path: Vec<String>,
    parent: Option<ModuleId>,
    file: PathBuf,
    /// Where the files of its child modules lie.
    directory: PathBuf,
    /// What `#[path]` of its child modules is relative to.
    paths_from: PathBuf,
}

fn add(tree: &mut Tree, new: New, items: &[Item]) -> Result<ModuleId, Error> {
    let id = ModuleId(tree.modules.len());
    let mut module = Module {
        path: new.path.clone(),
        file: new.file.clone(),
        parent: new.parent,
        children: std::collections::BTreeMap::new(),
        items: std::collections::BTreeMap::new(),
        imports: Vec::new(),
        mentions: Vec::new(),
    };
    collect(items, &mut module);
    tree.modules.push(module);
    for item in items.iter().filter(|item| !for_tests(attributes(item))) {
        match item {
            Item::Mod(declared) => add_child(tree, &new, id, declared)?,
            Item::Macro(item) if item.attrs.iter().any(is_macro_export) => {
                if let Some(name) = &item.ident {
                    export_macro(tree, &new.path, &name.to_string());
                }
            }
            _ => {}
        }
    }
    Ok(id)
}

fn add_child(
    tree: &mut Tree,
    parent: &New,
    parent_id: ModuleId,
    declared: &ItemMod,
) -> Result<(), Error> {
    let name = syn::ext::IdentExt::unraw(&declared.ident).to_string();
    let mut path = parent.path.clone();
    path.push(name.clone());
    let child = if let Some((_, items)) = &declared.content {
        let directory = parent.directory.join(&name);
        let new = New {
            path,
            parent: Some(parent_id),
            file: parent.file.clone(),
            paths_from: directory.clone(),
            directory,
        };
        add(tree, new, items)?
    } else {
        let (file, directory) = find(parent, declared, &name)?;
        let source = read(&file)?;
        if for_tests(&source.attrs) {
            return Ok(());
        }
        let new = New {
            path,
            parent: Some(parent_id),
            paths_from: file.parent().unwrap_or(Path::new(".")).to_owned(),
            file,
            directory,
        };
        add(tree, new, &source.items)?
    };
    tree.modules[parent_id.0].children.insert(name, child);
    Ok(())
}

/// The file of a declared module and the folder of its child modules' files.
fn find(parent: &New, declared: &ItemMod, name: &str) -> Result<(PathBuf, PathBuf), Error> {
    let mut choices = vec![
        (
            parent.directory.join(format!("{name}.rs")),
            parent.directory.join(name),
        ),
        (
            parent.directory.join(name).join("mod.rs"),
            parent.directory.join(name),
        ),
    ];
    if let Some(given) = declared.attrs.iter().find_map(path_attribute) {
        let file = parent.paths_from.join(given);
        let directory = file.parent().unwrap_or(Path::new(".")).to_owned();
        choices = vec![(file, directory)];
    }
    for (file, directory) in &choices {
        if file.is_file() {
            return Ok((file.clone(), directory.clone()));
        }
    }
    Err(Error::MissingModule {
        file: parent.file.clone(),
        line: declared.ident.span().start().line,
        module: name.to_owned(),
        looked_for: choices.pop().map(|(file, _)| file).unwrap_or_default(),
    })
}

/// `#[macro_export]` gives a macro the crate's root as a second home.
fn export_macro(tree: &mut Tree, module: &[String], name: &str) {
    if module.is_empty() {
        return;
    }
    let path = std::iter::once("crate")
        .chain(module.iter().map(String::as_str))
        .chain([name])
        .map(str::to_owned)
        .collect();
    tree.modules[0].imports.push(Import {
        name: Some(name.to_owned()),
        path,
        visibility: Visibility::Crate,
        line: 1,
    });
}

fn is_macro_export(attribute: &Attribute) -> bool {
    attribute.path().is_ident("macro_export")
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(path),
            ..
        }) if pair.path.is_ident("path") => Some(path.value()),
        _ => None,
    }
}

fn read(file: &Path) -> Result<syn::File, Error> {
    let text = std::fs::read_to_string(file).map_err(|source| Error::File {
        file: file.to_owned(),
        source,
    })?;
    syn::parse_file(&text).map_err(|source| Error::Syntax {
        file: file.to_owned(),
        line: source.span().start().line,
        source,
    })
}
