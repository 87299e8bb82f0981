//! Cycles that leave a session as it was: a host repeats each of them for months. The test
//! `growth` and the benchmark `soak` repeat them and measure what stays.

#[path = "one_function.rs"]
pub mod one_function;

use std::panic::catch_unwind;
use std::time::Duration;

use uruk::{Alias, Dylib, Flags, Func, Jit, ReclaimKind, Removal, Replacement, Tracker};

type Unary = extern "C" fn(i64) -> i64;

/// Objects that live beside the one that is added and removed.
#[allow(dead_code, reason = "the test takes fewer")]
pub const OTHERS: usize = 30_000;

/// Something that is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cycle {
    /// [`Dylib::replace`] of one function, and a call of it.
    Replace,
    /// [`Dylib::define_lazy`] of one name again, and a call of it.
    Lazy,
    /// [`Dylib::define_lazy`] of a name, a call of it, and [`Dylib::undefine`].
    Undefine,
    /// A name is made another one for a function, looked up, and removed.
    Alias,
    /// A module with names of its own is added, called and removed.
    Module,
    /// As `Module`; its function calls one of the host that fails.
    Error,
    /// As `Module`; its function calls one of the host that panics.
    Panic,
    /// A dylib is created, and removed with its module, which was called.
    Dylib,
    /// A dylib is created and removed.
    EmptyDylib,
    /// An object is added, looked up and removed.
    Object,
}

impl Cycle {
    pub const ALL: [Cycle; 10] = [
        Cycle::Replace,
        Cycle::Lazy,
        Cycle::Undefine,
        Cycle::Alias,
        Cycle::Module,
        Cycle::Error,
        Cycle::Panic,
        Cycle::Dylib,
        Cycle::EmptyDylib,
        Cycle::Object,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Cycle::Replace => "replace",
            Cycle::Lazy => "lazy",
            Cycle::Undefine => "undefine",
            Cycle::Alias => "alias",
            Cycle::Module => "module",
            Cycle::Error => "error",
            Cycle::Panic => "panic",
            Cycle::Dylib => "dylib",
            Cycle::EmptyDylib => "empty-dylib",
            Cycle::Object => "object",
        }
    }
}

/// A session in which a cycle is repeated.
pub struct Cycles {
    jit: Jit,
    cycle: Cycle,
    /// Objects that live meanwhile.
    _others: Vec<Tracker>,
}

#[derive(Debug, thiserror::Error)]
#[error("number {0} is not wanted")]
struct Unwanted(i64);

fn function(dylib: &Dylib, name: &str) -> Func<Unary> {
    // SAFETY: all functions here are of that type.
    unsafe { dylib.function(name) }.expect(name)
}

/// IR of a function that adds a number to its argument.
pub fn body(name: &str, summand: usize) -> String {
    format!("define i64 @{name}(i64 %x) {{ %y = add i64 %x, {summand} ret i64 %y }}")
}

fn calling(name: &str, callee: &str) -> String {
    format!(
        "declare i64 @{callee}(i64)
        define i64 @{name}(i64 %x) {{ %y = call i64 @{callee}(i64 %x) ret i64 %y }}"
    )
}

impl Cycles {
    /// A session for a cycle, beside so many objects.
    pub fn new(cycle: Cycle, others: usize) -> Cycles {
        let jit = Jit::builder().jobs(1).build().expect("a session");
        jit.define_fn("fails", |x: i64| Err::<i64, _>(Unwanted(x)))
            .expect("defined");
        jit.define_fn("panics", |x: i64| -> i64 { std::panic::panic_any(x) })
            .expect("defined");
        jit.add_ir("f", &body("f", 0)).expect("added");
        let other = |number: usize| {
            let tracker = jit.main().create_tracker().expect("a tracker");
            let object = one_function::object(&format!("o{number}"), 42);
            tracker.add_object("o.o", object).expect("added");
            tracker
        };
        let _others = (0..others).map(other).collect();
        Cycles {
            jit,
            cycle,
            _others,
        }
    }

    /// The session.
    pub fn jit(&self) -> &Jit {
        &self.jit
    }

    /// Carries out cycle `number`.
    pub fn run(&self, number: usize) {
        let main = self.jit.main();
        let name = format!("f{number}");
        match self.cycle {
            Cycle::Replace => {
                let next = Replacement::ir("next", &body("f", number));
                main.replace(next).expect("replaced");
                assert_eq!(function(&main, "f").call(1), 1 + number as i64);
            }
            Cycle::Lazy | Cycle::Undefine => {
                let summand = number as u64;
                main.define_lazy::<Unary>("lazy", move |module| {
                    let context = module.get_context();
                    let word = context.i64_type();
                    let ty = word.fn_type(&[word.into()], false);
                    let function = module.add_function("lazy", ty, None);
                    let builder = context.create_builder();
                    builder.position_at_end(context.append_basic_block(function, ""));
                    let x = function.get_nth_param(0).expect("it has one");
                    let word = word.const_int(summand, false);
                    let y = builder.build_int_add(x.into_int_value(), word, "")?;
                    builder.build_return(Some(&y))?;
                    Ok(())
                })
                .expect("defined");
                assert_eq!(function(&main, "lazy").call(1), 1 + number as i64);
                if self.cycle == Cycle::Undefine {
                    let name = [self.jit.intern("lazy")];
                    // SAFETY: nothing of it is used any more.
                    unsafe { main.undefine(&name) }.expect("undefined");
                }
            }
            Cycle::Alias => {
                let [name, target] = ["alias", "f"].map(|name| self.jit.intern(name));
                let flags = Flags::EXPORTED;
                let alias = Alias {
                    name,
                    target,
                    flags,
                };
                let tracker = main.create_tracker().expect("a tracker");
                tracker.alias([alias]).expect("defined");
                self.jit.lookup("alias").expect("it is there");
                remove(&tracker);
            }
            Cycle::Module => {
                let tracker = main.create_tracker().expect("a tracker");
                tracker.add_ir("m", &body(&name, 1)).expect("added");
                assert_eq!(function(&main, &name).call(1), 2);
                remove(&tracker);
            }
            Cycle::Error | Cycle::Panic => {
                let callee = match self.cycle {
                    Cycle::Error => "fails",
                    _ => "panics",
                };
                let tracker = main.create_tracker().expect("a tracker");
                let text = calling(&name, callee);
                tracker.add_ir("m", &text).expect("added");
                let function = function(&main, &name);
                match self.cycle {
                    Cycle::Error => drop(function.call_guarded(1).expect_err("it fails")),
                    _ => drop(catch_unwind(|| function.call(1)).expect_err("it panics")),
                }
                remove(&tracker);
            }
            Cycle::Dylib | Cycle::EmptyDylib => {
                let dylib = self.jit.create_dylib(&format!("d{number}"));
                let dylib = dylib.expect("a dylib");
                if self.cycle == Cycle::Dylib {
                    dylib.add_ir("m", &body("f", number)).expect("added");
                    assert_eq!(function(&dylib, "f").call(1), 1 + number as i64);
                }
                // SAFETY: nothing of it is used any more.
                unsafe { dylib.remove(Removal::Refused) }.expect("removed");
            }
            Cycle::Object => {
                let tracker = main.create_tracker().expect("a tracker");
                tracker
                    .add_object("f.o", one_function::object(&name, 42))
                    .expect("added");
                self.jit.lookup(&name).expect("it is there");
                remove(&tracker);
            }
        }
    }

    /// Has the memory of what was removed be given back.
    pub fn settle(&self) {
        let limit = Duration::from_secs(60);
        for _ in 0..2 {
            assert!(self.jit.reclaim(ReclaimKind::Sweep, limit), "it swept");
        }
    }
}

fn remove(tracker: &Tracker) {
    // SAFETY: nothing of it is used any more.
    unsafe { tracker.remove() }.expect("removed");
}
