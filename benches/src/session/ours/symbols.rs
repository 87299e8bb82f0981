//! Units, trackers, aliases and dependences without code: what names cost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use uruk::{
    Alias, DependenceGroup, Dylib, Flags, Interface, Jit, Lookup, Required, Responsibility, Symbol,
    Unit, Visibility,
};

use super::super::readings::Meter;
use super::{answers, target};

type Work = Box<dyn FnOnce(Responsibility) + Send>;

/// A unit of exported symbols, and what it does when one is asked for.
struct Custom {
    symbols: Vec<Symbol>,
    work: Work,
}

impl Unit for Custom {
    fn name(&self) -> &str {
        "custom"
    }

    fn interface(&self) -> Interface {
        let symbols = self.symbols.iter();
        symbols.map(|symbol| (*symbol, Flags::EXPORTED)).collect()
    }

    fn materialize(self: Box<Self>, responsibility: Responsibility) {
        (self.work)(responsibility);
    }
}

fn custom(
    symbols: impl IntoIterator<Item = Symbol>,
    work: impl FnOnce(Responsibility) + Send + 'static,
) -> Custom {
    Custom {
        symbols: symbols.into_iter().collect(),
        work: Box::new(work),
    }
}

/// A unit of one symbol whose address is known.
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

fn symbols(jit: &Jit, prefix: &str, count: usize) -> Vec<Symbol> {
    let names = (0..count).map(|n| format!("{prefix}{n}"));
    names.map(|name| jit.intern(&name)).collect()
}

/// Define, look up, materialize, resolve, emit: `count` trivial units one after the other.
///
/// # Errors
/// What the session reports.
pub fn publish(meter: &mut Meter, rounds: usize, count: usize) -> Result<()> {
    for _ in 0..rounds {
        let jit = Jit::new()?;
        let dylib = jit.main();
        let symbols = symbols(&jit, "symbol_", count);
        meter.phase("setup", 1);
        for (n, symbol) in symbols.iter().enumerate() {
            dylib.define(Trivial(*symbol, target(n)))?;
            answers(dylib.lookup_symbol(*symbol)?, n)?;
        }
        meter.phase("publish", count);
        drop((dylib, jit));
        meter.phase("teardown", 1);
    }
    Ok(())
}

/// The responsibilities of units that are at work until the end.
type Held = Arc<Mutex<Vec<Responsibility>>>;

fn hold(held: &Held) -> impl FnOnce(Responsibility) + Send + 'static {
    let held = Arc::clone(held);
    move |one| {
        held.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(one)
    }
}

/// Emits function n under the name `symbol`, which is ready when `needed` is.
fn waits(symbol: Symbol, needed: Symbol, n: usize) -> impl FnOnce(Responsibility) + Send + 'static {
    move |responsibility| {
        let group = DependenceGroup {
            symbols: vec![symbol],
            dependences: vec![(responsibility.dylib().id(), needed)],
        };
        // Failures show in lookups, which are checked.
        if responsibility.resolve(&[(symbol, target(n))]).is_ok() {
            let _ = responsibility.emit(&[group]);
        }
    }
}

/// Small trackers come and go beside `others` pending symbols. If those are `working`, they are
/// in units at work, and the small ones become ready. Otherwise all are emitted, and each waits
/// for another one whose unit is at work: the trackers go while theirs wait.
///
/// # Errors
/// What the session reports.
pub fn pending(meter: &mut Meter, working: bool, others: usize, small: usize) -> Result<()> {
    let jit = Jit::new()?;
    let dylib = jit.main();
    let pending = symbols(&jit, "pending_", others);
    let needed = symbols(&jit, "needed_", others);
    let own = symbols(&jit, "small_", small);
    let held = Held::default();
    let never = jit.intern("never");
    dylib.define(custom([never], hold(&held)))?;
    let mut wanted = vec![never];
    for (n, (symbol, needed)) in pending.iter().zip(&needed).enumerate() {
        wanted.push(*symbol);
        if working {
            dylib.define(custom([*symbol], hold(&held)))?;
        } else {
            dylib.define(custom([*symbol], waits(*symbol, *needed, n)))?;
            dylib.define(custom([*needed], hold(&held)))?;
            wanted.push(*needed);
        }
    }
    meter.phase("setup", 1);
    let all = wanted.len();
    let found = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&found);
    let order = [(dylib.clone(), Visibility::Exported)];
    jit.lookup_async(Lookup::new(order.clone()).symbols(wanted), move |result| {
        let count = result.map_or(usize::MAX, |found| found.len());
        told.store(count, Ordering::Relaxed);
    });
    let working_now = held.lock().unwrap_or_else(PoisonError::into_inner).len();
    ensure!(working_now == 1 + others, "{working_now} units are at work");
    ensure!(found.load(Ordering::Relaxed) == 0, "something is ready");
    meter.phase("pending", others.max(1));
    let required = if working {
        Required::Ready
    } else {
        Required::Resolved
    };
    let mut trackers = Vec::with_capacity(small);
    for (n, symbol) in own.iter().enumerate() {
        let tracker = dylib.create_tracker()?;
        if working {
            tracker.define(Trivial(*symbol, target(n)))?;
        } else {
            tracker.define(custom([*symbol], waits(*symbol, never, n)))?;
        }
        let lookup = Lookup::new(order.clone()).symbol(*symbol).at(required);
        answers(jit.lookup_all(lookup)?.address(*symbol).unwrap_or(0), n)?;
        trackers.push(tracker);
    }
    meter.phase("add", small);
    for tracker in &trackers {
        // SAFETY: nothing was at their addresses but functions of this program.
        unsafe { tracker.remove()? };
    }
    meter.phase("remove", small);
    ensure!(
        dylib.lookup_symbol(own[0]).is_err(),
        "a removed symbol is still there"
    );
    finish_all(&held)?;
    ensure!(
        found.load(Ordering::Relaxed) == all,
        "not all of the others became ready"
    );
    meter.phase("rest", 1);
    Ok(())
}

/// Has the units at work finish.
fn finish_all(held: &Held) -> Result<()> {
    let all = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
    for responsibility in all {
        let own = responsibility.symbols().iter();
        let addresses: Vec<_> = own.map(|(symbol, _)| (*symbol, target(0))).collect();
        responsibility.resolve(&addresses)?;
        responsibility.emit(&[])?;
    }
    Ok(())
}

/// `length` aliases, each in a unit of its own, each of the one before; the last is looked up.
///
/// # Errors
/// What the session reports.
pub fn aliases(meter: &mut Meter, rounds: usize, length: usize) -> Result<()> {
    for _ in 0..rounds {
        let jit = Jit::new()?;
        let dylib = jit.main();
        let symbols = symbols(&jit, "alias_", length + 1);
        meter.phase("setup", 1);
        dylib.define(Trivial(symbols[0], target(3)))?;
        for pair in symbols.windows(2) {
            dylib.alias([Alias {
                name: pair[1],
                target: pair[0],
                flags: Flags::EXPORTED,
            }])?;
        }
        meter.phase("define", length);
        answers(dylib.lookup_symbol(symbols[length])?, 3)?;
        meter.phase("lookup", length);
        drop((dylib, jit));
        meter.phase("teardown", 1);
    }
    Ok(())
}

/// `count` symbols, in one unit or in one each, of which each needs the next, and in a ring
/// the last the first; all are looked up.
///
/// # Errors
/// What the session reports.
pub fn graph(meter: &mut Meter, one_unit: bool, ring: bool, count: usize) -> Result<()> {
    let jit = Jit::new()?;
    let dylib = jit.main();
    let all: Arc<[Symbol]> = symbols(&jit, "node_", count).into();
    let each = if one_unit { count } else { 1 };
    for first in (0..count).step_by(each) {
        let range = first..first + each;
        let own = all[range.clone()].iter().copied();
        let all = Arc::clone(&all);
        let emit = move |responsibility: Responsibility| {
            emit_nodes(responsibility, &all, range, ring);
        };
        dylib.define(custom(own, emit))?;
    }
    meter.phase("setup", 1);
    let found = look_all_up(&dylib, &all)?;
    meter.phase("graph", count);
    for (n, address) in found.into_iter().enumerate() {
        answers(address, n)?;
    }
    meter.phase("check", 1);
    Ok(())
}

fn emit_nodes(
    responsibility: Responsibility,
    all: &[Symbol],
    range: std::ops::Range<usize>,
    ring: bool,
) {
    let dylib = responsibility.dylib().id();
    let mut addresses = Vec::with_capacity(range.len());
    let mut groups = Vec::with_capacity(range.len());
    for n in range {
        addresses.push((all[n], target(n)));
        if ring || n + 1 < all.len() {
            groups.push(DependenceGroup {
                symbols: vec![all[n]],
                dependences: vec![(dylib, all[(n + 1) % all.len()])],
            });
        }
    }
    // Failures show in the lookup, which is checked.
    if responsibility.resolve(&addresses).is_ok() {
        let _ = responsibility.emit(&groups);
    }
}

fn look_all_up(dylib: &Dylib, all: &[Symbol]) -> Result<Vec<u64>> {
    let order = [(dylib.clone(), Visibility::Exported)];
    let found = dylib
        .jit()
        .lookup_all(Lookup::new(order).symbols(all.iter().copied()))?;
    Ok(found.iter().map(|found| found.address).collect())
}
