//! The session as an embedder sees it: what scenarios of custom units, symbols, aliases and
//! dependences are written against.

pub use uruk_session::{
    AbsoluteSymbols, Alias, DependenceGroup, Dylib, Flags, Interface, Lookup, Required,
    Responsibility, Session, Symbol, Unit, Visibility,
};
use uruk_session::{PoolConfig, SessionConfig};

/// A session whose units are materialized by the threads that wait for them, as in the library.
pub fn session() -> Session {
    let pool = PoolConfig {
        jobs: 0,
        ..PoolConfig::default()
    };
    Session::new(SessionConfig {
        pool,
        ..SessionConfig::default()
    })
}
