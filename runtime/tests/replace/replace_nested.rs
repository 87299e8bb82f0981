//! Replacements that are requested by work which a replacement waits for, on other threads than its
//! own: an error, as waiting for the turn would never end.

use std::sync::mpsc::{Sender, channel};

use uruk::{
    Error, Flags, GeneratorRequest, Interface, Jit, ReplaceError, Replacement, Responsibility,
    Symbol, Unit,
};

const OLD: &str = "define i64 @a() { ret i64 1 }";
const INNER: &str = "define i64 @a() { ret i64 2 }";
/// It needs a name that has no definition yet.
const NEEDS: &str = "declare i64 @needed() define i64 @a() { %a = call i64 @needed() ret i64 %a }";

fn is_nested<T>(done: Result<T, Error>) -> bool {
    matches!(done, Err(Error::Replace(cause)) if matches!(*cause, ReplaceError::Nested))
}

fn value(jit: &Jit) -> i64 {
    // SAFETY: a function of this module, which only computes.
    let a = unsafe { jit.function::<extern "C" fn() -> i64>("a") }.expect("typed");
    a.call()
}

extern "C" fn forty() -> i64 {
    40
}

#[test]
fn a_generator_that_the_replacement_asks_cannot_replace() {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", OLD).expect("valid IR");
    let (sender, inner) = channel();
    let generate = move |ask: &GeneratorRequest| {
        let replaced = ask.dylib().replace(Replacement::ir("inner", INNER));
        sender.send(is_nested(replaced)).expect("it is awaited");
        Ok::<(), Error>(())
    };
    jit.main().add_generator(generate).expect("a generator");
    let outer = jit.main().replace(Replacement::ir("outer", NEEDS));
    assert!(outer.is_err(), "the name has no definition");
    assert!(inner.recv().expect("it was asked"));
    assert_eq!(value(&jit), 1);
}

/// A unit whose code comes after it tried to replace a function.
struct Replaces(Symbol, Jit, Sender<bool>);

impl Unit for Replaces {
    fn name(&self) -> &str {
        "replaces"
    }

    fn interface(&self) -> Interface {
        [(self.0, Flags::EXPORTED)].into_iter().collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        let replaced = self.1.main().replace(Replacement::ir("inner", INNER));
        self.2.send(is_nested(replaced)).expect("it is awaited");
        let addresses = [(self.0, forty as *const () as u64)];
        responsibility.publish(&addresses, &[]).expect("it is due");
    }
}

#[test]
fn a_unit_that_the_replacement_needs_cannot_replace() {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", OLD).expect("valid IR");
    let (sender, inner) = channel();
    let unit = Replaces(jit.intern("needed"), jit.clone(), sender);
    jit.main().define(unit).expect("a definition");
    let outer = jit.main().replace(Replacement::ir("outer", NEEDS));
    outer.expect("the unit gave its code");
    assert!(inner.recv().expect("it was asked"));
    assert_eq!(value(&jit), 40);
}

#[test]
fn work_of_others_waits_for_its_turn() {
    let jit = Jit::builder().jobs(2).build().expect("a session");
    jit.add_ir("m", OLD).expect("valid IR");
    let generate = |ask: &GeneratorRequest| {
        for (symbol, _) in ask.missing() {
            let name = ask.jit().name_of(*symbol).to_owned();
            let text = format!("define i64 @{name}() {{ ret i64 5 }}");
            ask.dylib().add_ir(&name, &text)?;
        }
        Ok::<(), Error>(())
    };
    jit.main().add_generator(generate).expect("a generator");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let jit = &jit;
            scope.spawn(move || {
                for round in 0..20 {
                    let name = format!("needed_{thread}_{round}");
                    let text = format!(
                        "declare i64 @{name}() define i64 @a() {{ %a = call i64 @{name}() ret i64 %a }}"
                    );
                    let replaced = jit.main().replace(Replacement::ir("new", &text));
                    replaced.expect("each waits for its turn");
                }
            });
        }
    });
    assert_eq!(value(&jit), 5);
}
