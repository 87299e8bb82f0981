//! The session's own package without the library around it: what a trivial unit costs where no
//! pass is needed.

use anyhow::Result;
use uruk_session::{
    Flags, Interface, PoolConfig, Responsibility, Session, SessionConfig, Symbol, Unit,
};

use super::super::readings::Meter;
use super::{answers, target};

struct Trivial(Symbol, u64);

impl Unit for Trivial {
    fn name(&self) -> &str {
        "trivial"
    }

    fn interface(&self) -> Interface {
        Interface::from_iter([(self.0, Flags::EXPORTED)])
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        // Failures show in the lookup, which is checked.
        let _ = responsibility.publish(&[(self.0, self.1)], &[]);
    }
}

/// As `symbols::publish`.
///
/// # Errors
/// What the session reports.
pub fn publish(meter: &mut Meter, rounds: usize, count: usize) -> Result<()> {
    for _ in 0..rounds {
        let pool = PoolConfig {
            jobs: 0,
            ..PoolConfig::default()
        };
        let session = Session::new(SessionConfig {
            pool,
            ..SessionConfig::default()
        });
        let dylib = session.create_dylib("main")?;
        let names = (0..count).map(|n| session.intern(&format!("symbol_{n}")));
        let symbols: Vec<Symbol> = names.collect();
        meter.phase("setup", 1);
        for (n, symbol) in symbols.iter().enumerate() {
            dylib.define(Trivial(*symbol, target(n)))?;
            answers(dylib.lookup(*symbol)?, n)?;
        }
        meter.phase("publish", count);
        session.end()?;
        drop((dylib, session));
        meter.phase("teardown", 1);
    }
    Ok(())
}
