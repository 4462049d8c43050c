//! Reads one module's syntax: the names it defines, its imports, the paths it mentions.
//!
//! Code that is compiled for tests only is left out. A module inside a function body is left out
//! as well.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ImplItem, Item, ItemUse, Meta, UseTree};

use crate::tree::{Import, Mention, Module, Visibility};

/// Adds to `module` what `items`, the module's own, define, import and mention.
pub fn collect(items: &[Item], module: &mut Module) {
    for item in items.iter().filter(|item| !for_tests(attributes(item))) {
        define(item, module);
    }
    let mut collector = Collector {
        imports: Vec::new(),
        mentions: Vec::new(),
        bound: BTreeSet::new(),
    };
    for item in items {
        collector.visit_item(item);
    }
    let Collector {
        imports,
        mentions,
        bound,
    } = collector;
    module.imports.extend(imports);
    // Scopes within a function are not followed. So a single name that is bound somewhere in the
    // module is treated as that variable, and a path that starts with a type parameter's name for
    // that parameter.
    module
        .mentions
        .extend(mentions.into_iter().filter(|mention| {
            let first = &mention.path[0];
            let may_be_module = mention.path.len() > 1 && !first.starts_with(char::is_uppercase);
            may_be_module || !bound.contains(first)
        }));
}

/// Whether these attributes leave the item out of everything but tests.
#[must_use]
pub fn for_tests(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .filter_map(|attribute| attribute.parse_args::<Meta>().ok())
        .any(|condition| requires_test(&condition))
}

/// Whether `condition` can only hold where `test` does.
fn requires_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated)
            .is_ok_and(|parts| parts.iter().any(requires_test)),
        _ => false,
    }
}

/// The attributes of an item.
#[must_use]
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn define(item: &Item, module: &mut Module) {
    let (name, visibility) = match item {
        Item::Const(item) => (&item.ident, visibility(&item.vis)),
        Item::Enum(item) => (&item.ident, visibility(&item.vis)),
        Item::Fn(item) => (&item.sig.ident, visibility(&item.vis)),
        Item::Static(item) => (&item.ident, visibility(&item.vis)),
        Item::Struct(item) => (&item.ident, visibility(&item.vis)),
        Item::Trait(item) => (&item.ident, visibility(&item.vis)),
        Item::TraitAlias(item) => (&item.ident, visibility(&item.vis)),
        Item::Type(item) => (&item.ident, visibility(&item.vis)),
        Item::Union(item) => (&item.ident, visibility(&item.vis)),
        Item::Macro(item) => match &item.ident {
            Some(name) => (name, Visibility::Private),
            None => return,
        },
        Item::ForeignMod(block) => {
            for item in &block.items {
                let (name, visible) = match item {
                    syn::ForeignItem::Fn(item) => (&item.sig.ident, &item.vis),
                    syn::ForeignItem::Static(item) => (&item.ident, &item.vis),
                    syn::ForeignItem::Type(item) => (&item.ident, &item.vis),
                    _ => continue,
                };
                module.items.insert(text(name), visibility(visible));
            }
            return;
        }
        _ => return,
    };
    module.items.insert(text(name), visibility);
}

fn visibility(written: &syn::Visibility) -> Visibility {
    match written {
        syn::Visibility::Public(_) => Visibility::Crate,
        syn::Visibility::Restricted(restricted) if restricted.path.is_ident("self") => {
            Visibility::Private
        }
        syn::Visibility::Restricted(restricted) if restricted.path.is_ident("super") => {
            Visibility::Super
        }
        // `pub(crate)`, and `pub(in …)`, which is treated the same.
        syn::Visibility::Restricted(_) => Visibility::Crate,
        syn::Visibility::Inherited => Visibility::Private,
    }
}

fn text(name: &Ident) -> String {
    name.unraw().to_string()
}

fn line(name: &Ident) -> usize {
    name.span().start().line
}

struct Collector {
    imports: Vec<Import>,
    mentions: Vec<Mention>,
    /// Names of variables and type parameters.
    bound: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if !for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        if !for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    /// A module has a place of its own in the tree.
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let start = if item.leading_colon.is_some() {
            vec![String::new()]
        } else {
            Vec::new()
        };
        self.import(&item.tree, start, visibility(&item.vis));
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        if let Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone(), true);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone(), false);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            let mut segments: Vec<String> =
                path.segments.iter().map(|part| text(&part.ident)).collect();
            if path.leading_colon.is_some() {
                segments.insert(0, String::new());
            }
            self.mentions.push(Mention {
                path: segments,
                line: line(&first.ident),
            });
        }
        visit::visit_path(self, path);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = text(&pattern.ident);
        // By custom, a name in upper case is a constant that the pattern compares with.
        if name.starts_with(char::is_uppercase) {
            self.mentions.push(Mention {
                path: vec![name],
                line: line(&pattern.ident),
            });
        } else {
            self.bound.insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_type_param(&mut self, parameter: &'ast syn::TypeParam) {
        self.bound.insert(text(&parameter.ident));
        visit::visit_type_param(self, parameter);
    }

    fn visit_const_param(&mut self, parameter: &'ast syn::ConstParam) {
        self.bound.insert(text(&parameter.ident));
        visit::visit_const_param(self, parameter);
    }
}

impl Collector {
    fn import(&mut self, tree: &UseTree, mut path: Vec<String>, visibility: Visibility) {
        let (ident, name) = match tree {
            UseTree::Path(part) => {
                path.push(text(&part.ident));
                return self.import(&part.tree, path, visibility);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone(), visibility);
                }
                return;
            }
            UseTree::Glob(glob) => {
                return self.imports.push(Import {
                    name: None,
                    path,
                    visibility,
                    line: glob.star_token.spans[0].start().line,
                });
            }
            UseTree::Name(leaf) => (&leaf.ident, &leaf.ident),
            UseTree::Rename(leaf) => (&leaf.ident, &leaf.rename),
        };
        let is_self = ident == "self";
        if !is_self {
            path.push(text(ident));
        }
        // `use a::b::{self}` gives the name `b`.
        let name = if is_self && name == "self" {
            path.last().cloned()
        } else {
            Some(text(name))
        };
        if let Some(name) = name {
            self.imports.push(Import {
                name: Some(name),
                path,
                visibility,
                line: line(ident),
            });
        }
    }

    /// Finds paths in the tokens of a macro's arguments or of an attribute. A single name counts
    /// only where it looks like a type, a constant, a call or a macro. In an attribute, a string
    /// may hold a path, as in `#[serde(with = "crate::text")]`.
    fn scan(&mut self, tokens: TokenStream, strings: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Group(group) => self.scan(group.stream(), strings),
                TokenTree::Literal(literal) if strings => self.string(literal),
                TokenTree::Ident(first) => {
                    let after_dot = at > 0
                        && matches!(&tokens[at - 1], TokenTree::Punct(mark) if mark.as_char() == '.')
                        && !(at > 1
                            && matches!(&tokens[at - 2], TokenTree::Punct(mark) if mark.as_char() == '.'));
                    let outside = at > 1 && is_colon(at - 1) && is_colon(at - 2);
                    let mut path = vec![text(first)];
                    while is_colon(at + 1) && is_colon(at + 2) {
                        let Some(TokenTree::Ident(next)) = tokens.get(at + 3) else {
                            break;
                        };
                        path.push(text(next));
                        at += 3;
                    }
                    let called = matches!(tokens.get(at + 1),
                        Some(TokenTree::Group(group)) if group.delimiter() == proc_macro2::Delimiter::Parenthesis)
                        || matches!(tokens.get(at + 1), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
                    let counts =
                        path.len() > 1 || called || path[0].starts_with(char::is_uppercase);
                    if counts && !after_dot && !outside {
                        self.mentions.push(Mention {
                            path,
                            line: line(first),
                        });
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn string(&mut self, literal: &proc_macro2::Literal) {
        let Ok(syn::Lit::Str(string)) = syn::parse_str::<syn::Lit>(&literal.to_string()) else {
            return;
        };
        let Ok(path) = string.parse_with(syn::Path::parse_mod_style) else {
            return;
        };
        if path.segments.len() > 1 {
            self.mentions.push(Mention {
                path: path.segments.iter().map(|part| text(&part.ident)).collect(),
                line: literal.span().start().line,
            });
        }
    }
}
