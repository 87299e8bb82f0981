//! Tests `docs/c-interface.md`, which lists for each function the handles that it returns, takes
//! over and frees, and the threads on which it may be called. It is made from the header, whose
//! comments are compared with the declarations and with the sources.
//!
//! `URUK_BLESS=1 cargo test -p uruk-c --test interface` writes it again.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;

use support::package;

/// A function of the header.
struct Declared {
    name: String,
    comment: String,
    /// The type of the result, without marks.
    result: String,
    /// Types with names.
    parameters: Vec<(String, String)>,
}

/// Splits at commas outside of parentheses.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty() && *part != "void");
    parts
}

/// The type and the name of a parameter: `const char *name`, `void (*drop)(void *context)`.
fn parameter(text: &str) -> (String, String) {
    if let Some((before, rest)) = text.split_once("(*") {
        let name = rest.split(')').next().unwrap_or_default();
        return (format!("{before}(*)"), name.to_owned());
    }
    let at = text.rfind([' ', '*']).map_or(0, |at| at + 1);
    (text[..at].trim().to_owned(), text[at..].to_owned())
}

fn declared() -> Vec<Declared> {
    let header = std::fs::read_to_string(package().join("include/uruk.h")).expect("the header");
    let mut found = Vec::new();
    for block in header.split("/**\n").skip(1) {
        let Some((comment, rest)) = block.split_once("*/\n") else {
            continue;
        };
        let lines = comment
            .lines()
            .map(|line| line.trim_start_matches([' ', '*']));
        let comment = lines.collect::<Vec<_>>().join(" ").trim().to_owned();
        let text = rest.split(';').next().unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = text.trim_start_matches("URUK_MUST_USE ");
        let Some((before, inside)) = text.split_once('(') else {
            continue;
        };
        let (result, name) = parameter(before);
        if text.contains('{') || !name.starts_with("uruk_") || text.starts_with("typedef") {
            continue;
        }
        let inside = inside.strip_suffix(')').unwrap_or(inside);
        found.push(Declared {
            name,
            comment,
            result,
            parameters: arguments(inside).into_iter().map(parameter).collect(),
        });
    }
    found
}

/// The handle type that a type points to with one pointer.
fn handle(ty: &str) -> Option<&str> {
    const NO_HANDLES: [&str; 6] = ["value", "definition", "settings", "stats", "unit", "bytes"];
    let name = ty.strip_prefix("struct uruk_")?.strip_suffix(" *")?;
    (!NO_HANDLES.contains(&name)).then_some(name)
}

impl Declared {
    fn answers_errors(&self) -> bool {
        self.result == "struct uruk_error *"
    }

    /// Handles that the host must free, and the function for it.
    fn hands_out(&self) -> Vec<String> {
        let mut out = Vec::new();
        match handle(&self.result) {
            Some("error") if self.name != "uruk_error_new" => {}
            Some(name) => out.push(format!("the result: `uruk_{name}_free`")),
            None if self.result == "char *" => {
                out.push(String::from("the result: `uruk_string_free`"));
            }
            None => {}
        }
        for (ty, name) in &self.parameters {
            let Some(ty) = ty.strip_suffix('*').filter(|_| !ty.starts_with("const")) else {
                continue;
            };
            match handle(ty.trim_end()).map(str::to_owned) {
                Some(kind) => out.push(format!("`{name}`: `uruk_{kind}_free`")),
                None if ty == "char *" => out.push(format!("`{name}`: `uruk_string_free`")),
                None => {}
            }
        }
        out
    }

    /// A context that it takes over, with the function that is called for it.
    fn takes_over(&self) -> Option<&str> {
        let names = self.parameters.iter().map(|(_, name)| name.as_str());
        let mut names = names.filter(|name| matches!(*name, "drop" | "release"));
        names.next()
    }

    /// The sentence of the comment on what it frees.
    fn frees(&self) -> Option<&str> {
        if self.name.ends_with("_free") {
            return Some("its argument");
        }
        let said = &self.comment[self.comment.find("Frees `")? + "Frees ".len()..];
        Some(said.split('.').next().unwrap_or(said))
    }

    fn threads(&self) -> &'static str {
        const SHARED_BY_NONE: [&str; 3] = ["responsibility", "improvement", "ask"];
        const OF_THE_CALLER: [&str; 4] = [
            "uruk_raise",
            "uruk_thread_current",
            "uruk_thread_fuel_used",
            "uruk_callable_call_with_fuel",
        ];
        let first = self
            .parameters
            .first()
            .map(|(ty, _)| ty.trim_start_matches("const "));
        let first = first.and_then(handle).unwrap_or_default();
        match self.name.as_str() {
            name if name.ends_with("_free") => "any, as the last that uses it",
            "uruk_program_run" => "the main thread",
            "uruk_callable_call" => "any; its interrupts and limits are the thread's",
            name if OF_THE_CALLER.contains(&name) => "any; it is about the calling thread",
            _ if SHARED_BY_NONE.contains(&first) => "any, one at a time",
            _ => "any, several at once",
        }
    }
}

fn table(functions: &[Declared]) -> String {
    let mut page = String::from(
        "# The C interface, function by function\n\n\
         Made from `uruk.h` by `URUK_BLESS=1 cargo test -p uruk-c --test interface`, which compares the\n\
         header's comments with its declarations and with the sources.\n\n\
         - A function that answers an error changes nothing but what the error's text says. What it was to\n  \
         hand out is null or as before then. The error is freed by `uruk_error_free`.\n\
         - *hands out*: what the host frees, and by which function.\n\
         - *takes over*: `context`, until the function of that name is called with it: once, at once after an\n  \
         error, whichever argument was in the way.\n\
         - *frees*: the host does not use it any more.\n\
         - Callbacks may call any function, but for `on_event` and `fill` of migrations, which call nothing of\n  \
         the session.\n\n\
         | function | error | hands out | takes over | frees | threads |\n|---|---|---|---|---|---|\n",
    );
    for one in functions {
        let error = if one.answers_errors() && one.name != "uruk_error_new" {
            "yes"
        } else {
            ""
        };
        let takes = one
            .takes_over()
            .map_or(String::new(), |name| format!("until `{name}`"));
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| `{}` | {error} | {} | {takes} | {} | {} |",
            one.name,
            one.hands_out().join("; "),
            one.frees().unwrap_or_default(),
            one.threads()
        );
    }
    page
}

#[test]
fn the_table_is_made_from_the_header() {
    let made = table(&declared());
    let file = package().join("../../docs/c-interface.md");
    if std::env::var_os("URUK_BLESS").is_some() {
        std::fs::write(&file, &made).expect("the page is written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let differing = made
        .lines()
        .zip(kept.lines())
        .find(|(made, kept)| made != kept);
    assert!(
        made == kept,
        "docs/c-interface.md is not what the header says (write it anew with URUK_BLESS=1): \
         {differing:?}"
    );
}

/// Bodies of the functions, by their names.
fn bodies() -> BTreeMap<String, String> {
    let mut bodies = BTreeMap::new();
    for file in std::fs::read_dir(package().join("src")).expect("the sources") {
        let text = std::fs::read_to_string(file.expect("a source").path()).expect("a source");
        for one in text.split("#[unsafe(no_mangle)]\n").skip(1) {
            let end = one.find("\n}\n").map_or(one.len(), |end| end);
            let name = one.split("fn ").nth(1).and_then(|it| it.split('(').next());
            bodies.insert(name.unwrap_or_default().to_owned(), one[..end].to_owned());
        }
    }
    bodies
}

#[test]
fn comments_say_what_is_handed_out_taken_over_and_freed() {
    let (functions, bodies) = (declared(), bodies());
    assert!(functions.len() > 150, "{}", functions.len());
    let mut wrong = Vec::new();
    for one in &functions {
        let (name, comment) = (&one.name, &one.comment);
        if !one.hands_out().is_empty() && !comment.contains("freed") {
            wrong.push(format!(
                "{name}: its comment does not say how what it hands out is freed"
            ));
        }
        if let Some(callback) = one.takes_over()
            && !(comment.contains(&format!("`{callback}`")) && comment.contains("once"))
        {
            wrong.push(format!(
                "{name}: its comment does not say when `{callback}` is called"
            ));
        }
        let Some(body) = bodies.get(name) else {
            wrong.push(format!("{name}: not in the sources"));
            continue;
        };
        let ends = ["ended(", "take(", "from_raw(", "taken("];
        let frees = ends.iter().any(|it| body.contains(it));
        if frees != one.frees().is_some() {
            wrong.push(format!(
                "{name}: it frees a handle: {frees}; its comment: {comment}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
