//! Names that compilers number by the order of a source: lambdas, blocks, types without a name, static
//! variables of one name in one function.
//!
//! A comparison of two versions of a source by name compares different items if their order
//! differs. Names without their numbers show which items are candidates for each other.

/// A name without the numbers that stand for an order; the name itself if it has none.
#[must_use]
pub fn without_ordinals(name: &str) -> String {
    let name = without_suffix(name);
    let name = without_numbers(name, "$_", false);
    let name = without_numbers(&name, "Ut", true);
    without_closures(&name)
}

/// Whether a name has such a visible number: the first of several may have none.
#[must_use]
pub fn is_numbered(name: &str) -> bool {
    without_ordinals(name) != name || name.contains(BLOCK)
}

/// Begins the suffix after the function's name in names of blocks.
const BLOCK: &str = "_block_invoke";

/// Without a number at the end: of a static variable, or of a block.
fn without_suffix(name: &str) -> &str {
    let shorter = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if shorter.len() == name.len() {
        // Numbers of two digits stand between `__` and `_`.
        let inner = name
            .strip_suffix('_')
            .map(|it| it.trim_end_matches(|c: char| c.is_ascii_digit()));
        let long = inner.and_then(|it| it.strip_suffix("__"));
        return long.filter(|_| name.starts_with("_ZZ")).unwrap_or(name);
    }
    let local = shorter.strip_suffix('_').filter(|it| {
        // A number of the mangled name itself is one of a length, which letters follow.
        name.starts_with("_ZZ") || it.ends_with(BLOCK)
    });
    let dotted = shorter.strip_suffix('.').filter(|it| !it.is_empty());
    dotted.or(local).unwrap_or(name)
}

/// Without digits after a mark, and those before it, which are the length of both.
fn without_numbers(name: &str, mark: &str, closed: bool) -> String {
    let mut written = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(mark) {
        let (before, after) = rest.split_at(at);
        let after = &after[mark.len()..];
        let end = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let fits = match closed {
            true => end.starts_with('_'),
            false => end.len() < after.len(),
        };
        match fits {
            true => written += before.trim_end_matches(|c: char| c.is_ascii_digit()),
            false => written += before,
        }
        written += mark;
        rest = if fits { end } else { after };
    }
    written + rest
}

/// Without the numbers of closures: `Ul`, their parameters, `E`, the number, `_`.
fn without_closures(name: &str) -> String {
    let mut written = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("Ul") {
        let (before, after) = rest.split_at(at + 2);
        written += before;
        let ends = after.match_indices('E').find_map(|(at, _)| {
            let number = &after[at + 1..];
            let end = number.trim_start_matches(|c: char| c.is_ascii_digit());
            end.starts_with('_')
                .then_some((at + 1, after.len() - end.len()))
        });
        let Some((first, last)) = ends else {
            rest = after;
            continue;
        };
        written += &after[..first];
        rest = &after[last..];
    }
    written + rest
}

#[cfg(test)]
mod tests {
    use super::{is_numbered, without_ordinals};

    #[test]
    fn numbers_of_an_order_are_left_out() {
        let same = [
            ["_ZZ4initvENK3$_0clEv", "_ZZ4initvENK4$_12clEv"],
            ["_ZZ4initvENKUlvE_clEv", "_ZZ4initvENKUlvE0_clEv"],
            ["_ZN3fooUt_E1x", "_ZN3fooUt12_E1x"],
            ["_ZZ2govE1n", "_ZZ2govE1n_0"],
            ["_ZZ2govE1n", "_ZZ2govE1n__11_"],
            ["go.n", "go.n.1"],
            ["__go_block_invoke", "__go_block_invoke_2"],
        ];
        for [first, other] in same {
            assert_eq!(without_ordinals(first), without_ordinals(other), "{first}");
            assert!(is_numbered(other), "{other}");
        }
        for name in [
            "go",
            "go2",
            "_Z2gov",
            "_Z3go_1v",
            "a.b",
            "_ZN1a2b3E",
            "x_1",
            "$_",
            ".5",
        ] {
            assert_eq!(without_ordinals(name), name);
            assert!(!is_numbered(name), "{name}");
        }
    }
}
