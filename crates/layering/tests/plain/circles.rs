//! Planted circles are found, in every way a sibling can be named; what is none is not reported.

#![allow(clippy::unwrap_used)] // A test may panic.

use midspan_layering::circles::{Circle, circles};
use midspan_layering::load::load;

/// The circles of the crate with these files, `lib.rs` among them.
fn found(files: &[(&str, &str)]) -> Vec<Circle> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    circles(&load(&folder.path().join("lib.rs")).unwrap())
}

/// Each circle as `a -> b -> a`.
fn chains(files: &[(&str, &str)]) -> Vec<String> {
    found(files)
        .iter()
        .map(|circle| {
            let mut names: Vec<&str> = circle.arrows.iter().map(|arrow| &*arrow.from).collect();
            names.push(names[0]);
            names.join(" -> ")
        })
        .collect()
}

/// Requires that module `a` with the text `a` and module `b`, which uses `a`, form a circle.
fn assert_uses_b(a: &str) {
    let b = "use super::a::A;\npub const C: u8 = 1;\npub struct B;\npub fn f(_: A) {}\npub mod deep { pub struct D; }";
    let files = [
        (
            "lib.rs",
            "mod a; mod b;\npub use b::B as OfB; pub use b::f;",
        ),
        ("a.rs", a),
        ("b.rs", b),
    ];
    assert_eq!(chains(&files), ["a -> b -> a"], "{a}");
}

#[test]
fn a_planted_circle_is_found_with_file_and_line_of_each_arrow() {
    let circle = &found(&[
        ("lib.rs", "pub mod one;\nmod two;\n"),
        ("one.rs", "pub mod below;\npub struct One;\n"),
        (
            "one/below.rs",
            "\n\nuse crate::two::Two;\npub fn f(_: Two) {}\n",
        ),
        (
            "two/mod.rs",
            "pub struct Two;\n\npub fn g(_: super::one::One) {}\n",
        ),
    ])[0];
    let expected = [
        ("one", "two", "one/below.rs", 3, "crate::two::Two"),
        ("two", "one", "two/mod.rs", 3, "super::one::One"),
    ];
    assert_eq!(circle.arrows.len(), expected.len());
    for (arrow, (from, to, file, line, path)) in circle.arrows.iter().zip(expected) {
        assert_eq!((&*arrow.from, &*arrow.to), (from, to));
        assert!(arrow.file.ends_with(file), "{}", arrow.file.display());
        assert_eq!((arrow.line, &*arrow.path), (line, path));
    }
}

#[test]
fn a_sibling_is_seen_however_it_is_named() {
    for a in [
        "pub struct A; use super::b::B;",
        "pub struct A; use crate::b::{B as Other};",
        "pub struct A; use super::b::{self, deep};",
        "pub struct A; use super::{b as other};",
        "pub struct A; use super::b::*;",
        "pub struct A; fn f() { use crate::b::B; }",
        "pub struct A; fn f(_: crate::b::B) {}",
        "pub struct A; fn f() -> u8 { super::b::C }",
        "pub struct A; fn f(a: u8) -> bool { matches!(a, crate::b::C) }",
        "pub struct A; fn f(a: u8) -> bool { match a { crate::b::C => true, _ => false } }",
        "pub struct A; fn f() { println!(\"{}\", super::b::C); }",
        "pub struct A; impl From<super::b::deep::D> for A { fn from(_: super::b::deep::D) -> A { A } }",
        "#[derive(serde::Serialize)] pub struct A { #[serde(with = \"crate::b::deep\")] a: u8 }",
        // Through the parent, by its re-export and by its private name.
        "pub struct A; use super::OfB;",
        "pub struct A; use crate::f as g;",
        "pub struct A; use super::*; fn h() { f(A); }",
        "pub struct A; use super::*; fn h() { let _ = b::C; }",
        "pub struct A; mod inner { use super::super::OfB; }",
        "pub struct A; mod inner { fn f() { let _ = crate::b::C; } }",
        "pub struct A; #[cfg(not(test))] use super::b::B;",
        "pub struct A; #[cfg(any(test, feature = \"x\"))] use super::b::B;",
    ] {
        assert_uses_b(a);
    }
}

#[test]
fn what_a_sibling_reexports_counts_for_both() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "pub struct A; use super::c::B;"),
        ("b.rs", "pub struct B; use super::a::A;"),
        ("c.rs", "pub use super::b::B;"),
    ];
    assert_eq!(chains(&files), ["a -> b -> a", "a -> c -> b -> a"]);
}

#[test]
fn parent_and_child_may_use_each_other() {
    let files = [
        (
            "lib.rs",
            "mod a;\npub struct Root;\nuse a::A;\nfn f(_: A, _: a::below::C) {}",
        ),
        (
            "a.rs",
            "pub mod below;\nuse below::C;\nuse super::Root;\npub struct A(C);",
        ),
        (
            "a/below.rs",
            "use super::A;\nuse crate::{Root, a};\npub struct C; fn f(_: A, _: a::A) {}",
        ),
    ];
    assert_eq!(chains(&files), Vec::<String>::new());
}

#[test]
fn what_tests_use_does_not_count() {
    let files = [
        ("lib.rs", "mod a; mod b;\n#[cfg(test)]\nmod checks;"),
        (
            "a.rs",
            "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n\
             #[cfg(all(test, unix))]\nfn f() { crate::b::f(); }\n\
             #[cfg(test)]\n#[path = \"of_a.rs\"]\nmod more;\n\
             impl A { #[cfg(test)] fn f() { crate::b::f(); } }",
        ),
        ("b.rs", "use super::a::A;\npub struct B; pub fn f() {}"),
    ];
    assert_eq!(chains(&files), Vec::<String>::new());
}

#[test]
fn a_name_of_another_crate_or_of_a_variable_is_no_sibling() {
    let files = [
        ("lib.rs", "mod a; mod b; mod queue;\npub use queue::length;"),
        (
            "a.rs",
            "pub struct A; use std::b::B; use ::queue::C; fn f() { crate_b::b::f(); }",
        ),
        ("b.rs", "use super::a::A; use super::queue::Q;"),
        (
            "queue.rs",
            "use super::*;\npub struct Q; pub fn length() {}\n\
             fn f(b: u8) -> u8 { let a = b; println!(\"{}\", a); a.b.a(b) }",
        ),
    ];
    assert_eq!(chains(&files), Vec::<String>::new());
}

#[test]
fn a_longer_circle_is_one_chain_and_inline_modules_count() {
    let text = "
        mod top {
            mod one { use super::two; }
            mod two { use crate::top::three::X; pub mod y {} }
            mod three { pub use super::one; pub struct X; }
            mod four { use super::one; use super::three::X; }
        }";
    assert_eq!(
        chains(&[("lib.rs", text)]),
        ["top::one -> top::two -> top::three -> top::one"]
    );
}

#[test]
fn circles_of_names_and_globs_end() {
    let text = "
        mod a { pub use super::b::*; pub use super::b::x; use super::b::nowhere; }
        mod b { pub use super::a::*; pub use super::a::x; }
        use a::*; use b::*; use x as y; use y as x;";
    assert_eq!(chains(&[("lib.rs", text)]), ["a -> b -> a"]);
}

#[test]
fn a_file_that_is_missing_or_no_rust_is_an_error_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("lib.rs");
    std::fs::write(&root, "\nmod absent;\n").unwrap();
    let error = load(&root).unwrap_err().to_string();
    assert!(
        error.contains("lib.rs:2: no file for module `absent`"),
        "{error}"
    );
    std::fs::write(&root, "fn f() {}\nfn {").unwrap();
    let error = load(&root).unwrap_err().to_string();
    assert!(error.contains("lib.rs:2: not valid Rust"), "{error}");
}
