//! A unit that does what a test wants.

use std::sync::{Arc, Mutex};

use uruk::{Dylib, Flags, Interface, Jit, Responsibility, Symbol, Unit};

type Work = Box<dyn FnOnce(Responsibility) + Send>;

/// What happened to a unit.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn push(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// See the module.
pub struct TestUnit {
    symbols: Vec<(Symbol, Flags)>,
    init: Option<Symbol>,
    work: Work,
    log: Log,
}

impl TestUnit {
    /// A unit that defines `names`, as exported data unless they end in `()`.
    pub fn new(
        jit: &Jit,
        names: &[&str],
        work: impl FnOnce(Responsibility) + Send + 'static,
    ) -> TestUnit {
        let symbols = names.iter().map(|name| match name.strip_suffix("()") {
            Some(name) => (jit.intern(name), Flags::EXPORTED | Flags::CALLABLE),
            None => (jit.intern(name), Flags::EXPORTED),
        });
        TestUnit {
            symbols: symbols.collect(),
            init: None,
            work: Box::new(work),
            log: Log::default(),
        }
    }

    /// A unit whose symbols are at an address each, ready at once.
    pub fn at(jit: &Jit, addresses: &[(&str, u64)]) -> TestUnit {
        let names: Vec<&str> = addresses.iter().map(|(name, _)| *name).collect();
        let addresses = addresses.iter();
        let known: Vec<(Symbol, u64)> = addresses
            .map(|(name, at)| (jit.intern(name.trim_end_matches("()")), *at))
            .collect();
        TestUnit::new(jit, &names, move |responsibility| {
            let own = known
                .iter()
                .filter(|(symbol, _)| responsibility.covers(*symbol));
            let own: Vec<_> = own.copied().collect();
            if responsibility.resolve(&own).is_ok() {
                let _ = responsibility.emit(&[]);
            }
        })
    }

    /// All symbols with these flags, too.
    pub fn flags(mut self, flags: Flags) -> TestUnit {
        for (_, own) in &mut self.symbols {
            *own = own.with(flags);
        }
        self
    }

    /// All symbols without these flags.
    pub fn without(mut self, flags: Flags) -> TestUnit {
        for (_, own) in &mut self.symbols {
            *own = own.without(flags);
        }
        self
    }

    pub fn init(mut self, symbol: Symbol) -> TestUnit {
        self.init = Some(symbol);
        self.symbols.push((symbol, Flags::SIDE_EFFECTS_ONLY));
        self
    }

    /// Tells `log` of what happens: `materialize`, `discard NAME`, `drop`.
    pub fn log(mut self, log: &Log) -> TestUnit {
        self.log = log.clone();
        self
    }
}

impl Unit for TestUnit {
    fn name(&self) -> &str {
        "a test's"
    }

    fn interface(&self) -> Interface {
        Interface {
            symbols: self.symbols.clone(),
            init: self.init,
        }
    }

    fn materialize(mut self: Box<Self>, responsibility: Responsibility) {
        self.log.push("materialize");
        let work = std::mem::replace(&mut self.work, Box::new(drop));
        work(responsibility);
    }

    fn discard(&mut self, dylib: &Dylib, symbol: Symbol) {
        let name = dylib.jit().name_of(symbol);
        self.log.push(format!("discard {name}"));
        self.symbols.retain(|(own, _)| *own != symbol);
    }
}

impl Drop for TestUnit {
    fn drop(&mut self) {
        self.log.push("drop");
    }
}
