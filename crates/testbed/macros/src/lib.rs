//! The attribute `#[kernel_test]` of the crate `midspan-testbed`.
//!
//! It looks for one name only, so it needs no parser of Rust and no further crate.

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// Registers a function without arguments as a kernel test: `midspan_testbed::KernelTests` finds it
/// and runs it in a process and a network namespace of its own.
///
/// The test's name is the path of the function within its test program, such as
/// `passing::addresses_are_kept`.
#[proc_macro_attribute]
pub fn kernel_test(options: TokenStream, item: TokenStream) -> TokenStream {
    if !options.is_empty() {
        return error("kernel_test takes no options");
    }
    let Some(name) = name_of_plain_function(item.clone()) else {
        return error("kernel_test belongs on a function without arguments: fn name() { … }");
    };
    let registration = format!("::midspan_testbed::register_kernel_test!({name});");
    let mut output = item;
    match registration.parse::<TokenStream>() {
        Ok(tokens) => output.extend(tokens),
        Err(_) => return error("kernel_test cannot use this name"),
    }
    output
}

/// The name after `fn`, where empty brackets follow it.
fn name_of_plain_function(item: TokenStream) -> Option<String> {
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let mut after = item.into_iter().skip_while(|token| !is_fn(token)).skip(1);
    let name = match after.next()? {
        TokenTree::Ident(name) => name.to_string(),
        _ => return None,
    };
    let has_no_arguments = match after.next()? {
        TokenTree::Group(group) => {
            group.delimiter() == Delimiter::Parenthesis && group.stream().is_empty()
        }
        _ => false,
    };
    has_no_arguments.then_some(name)
}

fn error(text: &str) -> TokenStream {
    format!("::core::compile_error!({text:?});")
        .parse()
        .unwrap_or_default()
}
