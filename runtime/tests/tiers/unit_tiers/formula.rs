//! A tiny compiler and its units: code that counts down, or waits for a word, and says which it is.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uruk::{
    Error, Event, Flags, Func, Interface, Jit, JitBuilder, ObjectBuilder, Refusal,
    ReoptimizeRequest, Reoptimizer, Responsibility, SessionError, Symbol, Unit,
};

use crate::unit::PATIENCE;

pub type F = Func<extern "C" fn(i64) -> i64>;

/// A compiler's output: takes turns in a loop, then says which code it is.
pub fn counting(name: &str, number: u8) -> Vec<u8> {
    let mut code = ObjectBuilder::new();
    code.function(
        name,
        &[
            0xb8, number, 0, 0, 0, // mov eax, NUMBER
            0x48, 0x85, 0xff, // test rdi, rdi
            0x7e, 0x05, // jle +5
            0x48, 0xff, 0xcf, // dec rdi
            0x75, 0xfb, // jnz -5
            0xc3,
        ],
    );
    code.finish().unwrap()
}

/// The same: says that it is inside, waits for the word to change, and says which code it is.
pub fn waiting(name: &str, number: u8) -> Vec<u8> {
    let mut code = ObjectBuilder::new();
    code.function(
        name,
        &[
            0x48, 0xc7, 0x47, 8, 1, 0, 0, 0, // mov qword [rdi + 8], 1
            0x48, 0x83, 0x3f, 0, // cmp qword [rdi], 0
            0x74, 0xfa, // je -6
            0xb8, number, 0, 0, 0, // mov eax, NUMBER
            0xc3,
        ],
    );
    code.finish().unwrap()
}

/// The words that waiting code looks at.
#[derive(Default)]
#[repr(C)]
pub struct Words {
    pub go: AtomicI64,
    pub inside: AtomicI64,
}

impl Words {
    pub fn address(&self) -> i64 {
        std::ptr::from_ref(self).addr() as i64
    }
}

/// A function whose first code is tier 1's.
pub struct Formula {
    symbol: Symbol,
    object: Vec<u8>,
    improver: Arc<dyn Reoptimizer>,
}

impl Unit for Formula {
    fn name(&self) -> &str {
        "formula"
    }

    fn interface(&self) -> Interface {
        let flags = Flags::EXPORTED | Flags::CALLABLE;
        [(self.symbol, flags)].into_iter().collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        responsibility.link("first.o", self.object).unwrap();
    }

    fn improver(&self) -> Option<Arc<dyn Reoptimizer>> {
        Some(Arc::clone(&self.improver))
    }
}

pub fn formula(jit: &Jit, object: Vec<u8>, improver: impl Reoptimizer) -> Formula {
    let (symbol, improver) = (jit.intern("f"), Arc::new(improver));
    Formula {
        symbol,
        object,
        improver,
    }
}

pub fn function(jit: &Jit) -> F {
    // SAFETY: the functions of these tests take and return a number.
    unsafe { jit.function("f").unwrap() }
}

/// Links the code whose number is its tier.
pub fn by_tier(better: ReoptimizeRequest) {
    let code = counting("f", better.tier().number());
    better.link("better.o", code).unwrap();
}

pub type Told = Arc<Mutex<Vec<String>>>;

/// A session, what its events say of versions, and what is reported.
pub fn told(builder: JitBuilder) -> (Jit, Told, Told) {
    let (events, reports) = (Told::default(), Told::default());
    let sink = Arc::clone(&reports);
    let report = move |error: &SessionError| {
        let source = std::error::Error::source(error).map(ToString::to_string);
        sink.lock().unwrap().push(format!("{error}: {source:?}"));
    };
    let sink = Arc::clone(&events);
    let listener = move |event: &Event| {
        let text = match event {
            Event::Compiled { tier, .. } => format!("compiled {}", tier.number()),
            Event::Published { tier, replaced, .. } => {
                let before = replaced.map_or(0, |(_, tier)| tier.number());
                format!("published {} after {before}", tier.number())
            }
            Event::Failed { tier, message, .. } => format!("failed {}: {message}", tier.number()),
            Event::Dropped { .. } => String::from("dropped"),
            Event::Cancelled { .. } => String::from("cancelled"),
            _ => return,
        };
        sink.lock().unwrap().push(text);
    };
    let builder = builder.on_error(report);
    let jit = builder.on_event(listener).build().unwrap();
    (jit, events, reports)
}

pub fn all(told: &Told) -> Vec<String> {
    told.lock().unwrap().clone()
}

/// Waits for something that is to happen on another thread.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn refusal(result: Result<(), Error>) -> Refusal {
    match result {
        Err(Error::Version { cause, .. }) => cause,
        other => panic!("no refusal: {other:?}"),
    }
}
