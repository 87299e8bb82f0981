//! The short way of a lookup of one symbol leads where the long one does.
//!
//! The oracle is [`Session::lookup`] of the same symbol in the same order. Two sessions are made by
//! the same random steps, and each is searched in one of the ways. Both must have the same answers,
//! runs, reports and states.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use common::*;
use std::sync::Arc;
use uruk_session::{
    AbsoluteSymbols, Alias, DependenceGroup, Dylib, Flags, GeneratorRequest, Lookup, Required,
    Responsibility, SessionError, Symbol, Visibility,
};
use uruk_testing::Random;

/// The action of a unit when one of its symbols is looked up.
#[derive(Clone, Copy)]
enum Work {
    Finish,
    Publish,
    FinishElsewhere,
    Fail,
    Abandon,
    Panic,
    /// Emits symbols that are ready with another one.
    Need(Symbol),
    /// Looks one up first that asks for nothing itself.
    Ask,
    GiveBack,
    RemoveItself,
}

fn fail() -> SessionError {
    SessionError::unit("a unit", "does not want to")
}

fn work(work: Work) -> impl FnOnce(Responsibility) + Send + 'static {
    move |responsibility| {
        let own: Vec<Symbol> = responsibility.symbols().iter().map(|(s, _)| *s).collect();
        let addresses: Vec<_> = own
            .iter()
            .map(|s| (*s, 0x2000 + u64::from(s.id())))
            .collect();
        let dylib = responsibility.dylib();
        // The comparison covers errors: lookups return them.
        match work {
            Work::Finish => finish(responsibility),
            Work::Publish => drop(responsibility.publish(&addresses, &[])),
            Work::FinishElsewhere => {
                let thread = std::thread::spawn(move || finish(responsibility));
                drop(thread.join());
            }
            Work::Fail => responsibility.fail(fail()),
            Work::Abandon => drop(responsibility),
            Work::Panic => panic!("a bad unit"),
            Work::Need(needed) => {
                drop(responsibility.resolve(&addresses));
                let order = [(dylib.clone(), Visibility::All)];
                let lookup = Lookup::new(order).symbol(needed).at(Required::Resolved);
                dylib
                    .session()
                    .lookup_async(lookup, move |found| match found {
                        Ok(found) => {
                            let dependences = found.dependences();
                            let group = DependenceGroup {
                                symbols: own,
                                dependences,
                            };
                            drop(responsibility.emit(&[group]));
                        }
                        Err(cause) => responsibility.fail(cause),
                    });
            }
            Work::Ask => {
                drop(dylib.find(dylib.session().intern("leaf")));
                finish(responsibility);
            }
            Work::GiveBack => {
                let symbols = responsibility.symbols().to_vec();
                let (unit, _) = Custom::new(&symbols, finish);
                drop(responsibility.fail_retryable(fail(), unit));
            }
            Work::RemoveItself => {
                let tracker = responsibility.tracker().ok();
                let tracker = tracker.and_then(|key| dylib.session().tracker(key));
                drop(tracker.map(|tracker| tracker.remove()));
                finish(responsibility);
            }
        }
    }
}

/// One session that is made by random steps.
struct World {
    env: Env,
    dylibs: Vec<Dylib>,
    names: Vec<Symbol>,
    logs: Vec<Arc<Log>>,
}

impl World {
    fn new() -> World {
        let env = env(0);
        let others = ["one", "two"].map(|name| env.session.create_dylib(name).unwrap());
        let names = ["a", "b", "c", "d"].map(|name| env.session.intern(name));
        let leaf = env.session.intern("leaf");
        env.dylib.define(env.plain(&[leaf]).0).unwrap();
        World {
            dylibs: [env.dylib.clone()].into_iter().chain(others).collect(),
            names: names.to_vec(),
            logs: Vec::new(),
            env,
        }
    }

    /// Takes a random step that changes the session; returns its outcome.
    fn step(&mut self, random: &mut Random) -> String {
        let dylib = self.dylibs[random.below(3) as usize].clone();
        let other = self.dylibs[random.below(3) as usize].clone();
        let [name, second, third] = [(); 3].map(|()| random.one_of(&self.names));
        let visible = random.one_of(&[EXPORTED, EXPORTED, Flags::NONE]);
        let seen = random.one_of(&[Visibility::Exported, Visibility::All]);
        let weak = random.one_of(&[Flags::NONE, Flags::NONE, Flags::WEAK]);
        let flags = visible.with(weak);
        let addressless = Flags::SIDE_EFFECTS_ONLY;
        let kind = random.below(18);
        match kind {
            0..=7 => {
                let all = [
                    Work::Finish,
                    Work::Publish,
                    Work::FinishElsewhere,
                    Work::Fail,
                    Work::Abandon,
                    Work::Panic,
                    Work::Need(third),
                    Work::Ask,
                    Work::GiveBack,
                    Work::RemoveItself,
                ];
                // A symbol without an address is visible to others only once it is ready.
                let shape = random.below(4);
                let chosen = random.one_of(&all);
                let work = work(if shape == 1 { Work::Finish } else { chosen });
                let symbols = match shape {
                    0 if second != name => vec![(name, flags), (second, EXPORTED)],
                    1 => vec![(name, flags.with(addressless))],
                    _ => vec![(name, flags)],
                };
                let (unit, log) = Custom::new(&symbols, work);
                self.logs.push(log);
                match random.below(3) {
                    0 => {
                        let tracker = dylib.create_kept_tracker().unwrap();
                        let tracker = self.env.session.tracker(tracker).unwrap();
                        format!("{:?}", tracker.define(unit))
                    }
                    _ => format!("{:?}", dylib.define(unit)),
                }
            }
            8 => format!(
                "{:?}",
                dylib.define(AbsoluteSymbols::new([(name, 7, flags)]))
            ),
            9 => {
                let alias = Alias {
                    name,
                    target: second,
                    flags: visible,
                };
                format!("{:?}", dylib.reexport(&other, seen, [alias]))
            }
            10 | 11 | 13 => format!("{:?}", dylib.add_to_link_order(&other, seen)),
            12 | 16 => {
                let generator = move |ask: &GeneratorRequest| {
                    let missing = ask.missing().iter();
                    let mut wanted = missing.filter(|(symbol, _)| *symbol == name);
                    match wanted.next() {
                        Some(_) => ask
                            .dylib()
                            .define(AbsoluteSymbols::new([(name, 9, EXPORTED)])),
                        None => Ok(()),
                    }
                };
                format!("{:?}", dylib.add_generator(generator))
            }
            14 => format!("{:?}", dylib.remove(&[name])),
            15 => format!("{:?}", dylib.remove_from_link_order(&other)),
            _ => match random.below(8) {
                0 => format!("{:?}", dylib.clear()),
                1 => {
                    // A definition that displaces a weak one may be undone, but not for long.
                    let tracker = dylib.create_tentative_tracker().unwrap();
                    let (unit, log) = Custom::new(&[(name, EXPORTED)], finish);
                    self.logs.push(log);
                    let defined = tracker.define(unit);
                    let found = self.ask(&dylib, second, true, random.below(2) == 0);
                    format!("{defined:?} {found} {:?}", tracker.remove())
                }
                _ => String::new(),
            },
        }
    }

    /// Asks in one way or the other.
    fn ask(&self, dylib: &Dylib, name: Symbol, short: bool, in_order: bool) -> String {
        let answer = match (short, in_order) {
            (true, true) => dylib.find(name),
            (true, false) => dylib.lookup(name).map(Some),
            (false, true) => {
                let lookup = Lookup::new(dylib.search_order()).weak(name);
                let found = self.env.session.lookup(lookup);
                found.map(|found| found.address(name))
            }
            (false, false) => {
                let lookup = Lookup::new([(dylib.clone(), Visibility::All)]).symbol(name);
                let found = self.env.session.lookup(lookup);
                found.map(|found| found.address(name))
            }
        };
        format!("{answer:?}")
    }

    /// Everything that can be seen.
    fn seen(&self) -> String {
        let states = self.dylibs.iter().flat_map(|dylib| {
            let names = self.names.iter();
            names.map(|name| {
                (
                    self.env.session.symbol_state(dylib, *name),
                    dylib.ready(*name),
                )
            })
        });
        let units = self.logs.iter();
        let units = units.map(|log| (log.runs(), log.drops(), log.discards()));
        let reported = self.env.reported.lock().unwrap();
        format!(
            "{:?} {:?} {:?}",
            states.collect::<Vec<_>>(),
            units.collect::<Vec<_>>(),
            *reported
        )
    }
}

#[test]
fn it_leads_where_the_long_way_does() {
    for seed in 1..=2_000_u64 {
        let mut randoms = [Random::new(seed), Random::new(seed)];
        let mut worlds = [World::new(), World::new()];
        for _ in 0..40 {
            let mut told = Vec::new();
            for (n, (world, random)) in worlds.iter_mut().zip(&mut randoms).enumerate() {
                let mut text = match random.below(2) {
                    0 => world.step(random),
                    _ => {
                        let dylib = world.dylibs[random.below(3) as usize].clone();
                        let name = random.one_of(&world.names);
                        let in_order = random.below(2) == 0;
                        world.ask(&dylib, name, n == 0, in_order)
                    }
                };
                text.push_str(&world.seen());
                told.push(text);
            }
            assert_eq!(told[0], told[1], "seed {seed}");
        }
    }
}
