//! A wide set: many functions of one object file, replaced and rolled back as one.
//!
//! All of them tell the generation of their object. A thread that calls two of them while
//! one exchange is under way sees old and old, old and new, or new and new. Code is linked,
//! not compiled, and a rollback links nothing: this is how a test reaches many replacements.

use std::sync::atomic::{AtomicU64, Ordering};

use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};
use uruk::{Error, Jit, Replacement};

/// Functions of the set.
pub const WIDTH: u64 = 512;

/// The set, and the generations that may run.
pub struct Wide {
    addresses: Vec<u64>,
    /// Of the exchange that is under way or comes next. Written before `changes` is odd.
    from: AtomicU64,
    to: AtomicU64,
    /// Even numbers are at rest; one is added before an exchange and one after.
    changes: AtomicU64,
    generation: AtomicU64,
}

impl Wide {
    /// Adds generation 0 to a session.
    pub fn new(jit: &Jit) -> Result<Wide, Error> {
        jit.main().add_object("wide.o", object(0))?;
        let address = |i| jit.lookup(&format!("w{i}"));
        Ok(Wide {
            addresses: (0..WIDTH).map(address).collect::<Result<_, _>>()?,
            from: AtomicU64::new(0),
            to: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        })
    }

    /// Calls two functions, chosen by `x`, one after the other.
    pub fn call(&self, x: u64) {
        let function = |i: u64| {
            let address = self.addresses[(i % WIDTH) as usize];
            // SAFETY: the stub of a function without arguments that gives a number.
            let function: extern "C" fn() -> u64 = unsafe { std::mem::transmute(address) };
            function()
        };
        let before = self.changes.load(Ordering::SeqCst);
        let generation = self.generation.load(Ordering::SeqCst);
        let (from, to) = (
            self.from.load(Ordering::SeqCst),
            self.to.load(Ordering::SeqCst),
        );
        let (a, b) = (function(x), function(x >> 32));
        if self.changes.load(Ordering::SeqCst) != before {
            return;
        }
        if before.is_multiple_of(2) {
            assert_eq!((a, b), (generation, generation), "at rest");
        } else {
            let legal = [(from, from), (from, to), (to, to)];
            assert!(legal.contains(&(a, b)), "{from} to {to}: {a}, then {b}");
        }
    }

    /// Puts another generation in place; the one before it.
    pub fn replace(&self, jit: &Jit, generation: u64) -> Result<u64, Error> {
        let before = self.generation.load(Ordering::SeqCst);
        let new = Replacement::object("wide.o", object(generation));
        self.exchange(generation, || Ok(jit.main().replace(new)?.functions))?;
        Ok(before)
    }

    /// Goes back to the generation before, which was `generation`.
    pub fn roll_back(&self, jit: &Jit, generation: u64) -> Result<(), Error> {
        self.exchange(generation, || Ok(jit.rollback()?.functions))
    }

    fn exchange(
        &self,
        to: u64,
        exchange: impl FnOnce() -> Result<Vec<String>, Error>,
    ) -> Result<(), Error> {
        let from = self.generation.load(Ordering::SeqCst);
        self.from.store(from, Ordering::SeqCst);
        self.to.store(to, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        let functions = exchange()?;
        self.generation.store(to, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        assert_eq!(functions.len() as u64, WIDTH, "{from} to {to}");
        Ok(())
    }
}

/// `mov eax, generation; ret`, `WIDTH` times.
fn object(generation: u64) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let text = object.add_section(Vec::new(), b".text".into(), SectionKind::Text);
    let mut code = vec![0xb8];
    code.extend_from_slice(&(generation as u32).to_le_bytes());
    code.push(0xc3);
    for i in 0..WIDTH {
        let value = object.append_section_data(text, &code, 16);
        object.add_symbol(Symbol {
            name: format!("w{i}").into_bytes(),
            value,
            size: code.len() as u64,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
    }
    object.write().expect("a small object")
}
