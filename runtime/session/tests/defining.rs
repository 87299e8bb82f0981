//! Definitions: weak and strong, states, units that are dropped, lookups.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use uruk_session::{
    AbsoluteSymbols, Alias, Flags, LookupKind, Names, Required, SessionError, SymbolState,
    Visibility,
};

fn names(error: &SessionError) -> Vec<String> {
    let names: &Names = error.names().expect("an error with names");
    names.names().into_iter().map(str::to_owned).collect()
}

#[test]
fn absolute_and_hidden() {
    let env = env(0);
    let other = env.session.create_dylib("other").unwrap();
    env.dylib
        .define(AbsoluteSymbols::new([
            (env.a, 1, Flags::NONE),
            (env.b, 2, EXPORTED),
        ]))
        .unwrap();
    other
        .define(AbsoluteSymbols::new([(env.a, 3, EXPORTED)]))
        .unwrap();
    assert_eq!(env.dylib.lookup(env.a).unwrap(), 1);
    assert_eq!(env.dylib.lookup(env.session.intern("b")).unwrap(), 2);
    assert_eq!(env.dylib.ready_name("b"), Some(2));
    // Hidden symbols are skipped, before and after they are ready.
    for _ in 0..2 {
        let order = [
            (env.dylib.clone(), Visibility::Exported),
            (other.clone(), Visibility::Exported),
        ];
        let lookup = uruk_session::Lookup::new(order).symbols([env.a, env.b]);
        let found = env.session.lookup(lookup).unwrap();
        assert_eq!(found.address(env.a), Some(3));
        assert_eq!(found.get(env.a).unwrap().dylib, other.id());
        assert_eq!(found.address(env.b), Some(2));
        assert!(found.dependences().is_empty());
    }
    // A value wider than the fast table's words.
    env.dylib
        .define(AbsoluteSymbols::new([(
            env.c,
            u64::MAX,
            EXPORTED | Flags::ABSOLUTE,
        )]))
        .unwrap();
    assert_eq!(env.dylib.lookup(env.c).unwrap(), u64::MAX);
    assert_eq!(env.dylib.lookup(env.c).unwrap(), u64::MAX);
}

#[test]
fn empty_lookups_and_missing_names() {
    let env = env(0);
    assert!(env.session.lookup(env.all()).unwrap().is_empty());
    assert!(env.start(&[], Required::Ready).is_done());
    let (unit, log) = env.plain(&[env.a]);
    env.dylib.define(unit).unwrap();
    let error = env.failing(&[env.a, env.b, env.c]);
    assert!(matches!(error, SessionError::NotFound(_)));
    assert_eq!(names(&error), ["b", "c"]);
    assert_eq!(error.to_string(), "symbols not found: main: {b, c}");
    // All or nothing: the unit stays where it was.
    assert_eq!(log.runs(), 0);
    let state = env.session.symbol_state(&env.dylib, env.a);
    assert_eq!(state, Some(SymbolState::NeverSearched));
    let found = env
        .session
        .lookup(env.all().symbol(env.a).weak(env.b))
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(log.runs(), 1);
}

#[test]
fn lookup_completes_only_at_its_state() {
    let env = env(0);
    let (unit, kept) = env.kept(&[env.a]);
    env.dylib.define(unit).unwrap();
    let resolved = env.start(&[env.a], Required::Resolved);
    let ready = env.start(&[env.a], Required::Ready);
    assert!(!resolved.is_done() && !ready.is_done());
    let responsibility = take(&kept);
    resolve(&responsibility).unwrap();
    assert!(resolved.is_done() && !ready.is_done());
    let found = resolved.wait().unwrap();
    assert_eq!(found.dependences(), [(env.dylib.id(), env.a)]);
    assert_eq!(env.dylib.ready(env.a), None);
    responsibility.emit(&[]).unwrap();
    assert!(ready.wait().unwrap().dependences().is_empty());
    assert_eq!(env.dylib.ready(env.a), Some(address(env.a)));
}

#[test]
fn one_of_two_symbols_is_asked_for() {
    let env = env(0);
    let (a, b) = (env.a, env.b);
    let (unit, log) = Custom::new(&[(a, EXPORTED), (b, EXPORTED)], move |responsibility| {
        assert_eq!(responsibility.requested(), [a]);
        finish(responsibility);
    });
    env.dylib.define(unit).unwrap();
    env.dylib.lookup(a).unwrap();
    assert_eq!(env.dylib.ready(b), Some(address(b)));
    assert_eq!((log.runs(), log.drops()), (1, 1));
    assert!(env.reported.lock().unwrap().is_empty());
}

#[test]
fn duplicates_change_nothing() {
    let env = env(0);
    env.dylib.define(env.plain(&[env.a, env.b]).0).unwrap();
    let (unit, log) = env.plain(&[env.c, env.b, env.a]);
    let error = env.dylib.define(unit).unwrap_err();
    assert!(matches!(error, SessionError::Duplicate(_)));
    assert_eq!(names(&error), ["a", "b"]);
    assert_eq!(log.drops(), 1);
    assert_eq!(env.session.symbol_state(&env.dylib, env.c), None);
    let twice = env.plain(&[env.c, env.c]).0;
    assert!(env.dylib.define(twice).is_err());
    assert_eq!(env.session.symbol_state(&env.dylib, env.c), None);
}

#[test]
fn strong_overrides_unsearched_weak() {
    for weak in [Flags::WEAK, Flags::COMMON] {
        let env = env(0);
        let (old, old_log) = env.plain_flags(&[(env.a, EXPORTED | weak), (env.b, EXPORTED)]);
        env.dylib.define(old).unwrap();
        let (new, new_log) = env.plain(&[env.a]);
        env.dylib.define(new).unwrap();
        assert_eq!(old_log.discards(), [env.a]);
        assert_eq!(old_log.drops(), 0);
        env.dylib.lookup(env.a).unwrap();
        assert_eq!((old_log.runs(), new_log.runs()), (0, 1));
        env.dylib.lookup(env.b).unwrap();
        assert_eq!(old_log.runs(), 1);
    }
}

#[test]
fn a_unit_is_dropped_when_empty() {
    let env = env(0);
    let (old, log) = env.plain_flags(&[(env.a, EXPORTED | Flags::WEAK)]);
    env.dylib.define(old).unwrap();
    env.dylib.define(env.plain(&[env.a]).0).unwrap();
    assert_eq!((log.discards(), log.drops()), (vec![env.a], 1));
}

#[test]
fn first_weak_wins_and_counts_as_strong_once_searched() {
    let env = env(0);
    let weak = EXPORTED | Flags::WEAK;
    let (first, first_log) = env.plain_flags(&[(env.a, weak)]);
    let (second, second_log) = env.plain_flags(&[(env.a, weak), (env.b, EXPORTED)]);
    env.dylib.define(first).unwrap();
    env.dylib.define(second).unwrap();
    assert_eq!(second_log.discards(), [env.a]);
    env.dylib.lookup(env.a).unwrap();
    env.dylib.lookup(env.b).unwrap();
    assert_eq!((first_log.runs(), second_log.runs()), (1, 1));
    // Redefining a bound weak fails; another weak is discarded.
    let error = env.dylib.define(env.plain(&[env.a]).0).unwrap_err();
    assert!(matches!(error, SessionError::Duplicate(_)));
    let (third, third_log) = env.plain_flags(&[(env.a, weak)]);
    env.dylib.define(third).unwrap();
    assert_eq!((third_log.discards().len(), third_log.drops()), (1, 1));
}

#[test]
fn side_effects_only() {
    let env = env(0);
    let flags = Flags::SIDE_EFFECTS_ONLY | EXPORTED;
    let (unit, log) = env.plain_flags(&[(env.a, flags), (env.b, EXPORTED)]);
    env.dylib.define(unit).unwrap();
    let error = env.failing(&[env.a]);
    assert!(matches!(error, SessionError::NotFound(_)));
    assert_eq!(log.runs(), 0);
    for at in [Required::Ready, Required::Resolved] {
        let found = env.session.lookup(env.all().weak(env.a).at(at)).unwrap();
        assert!(found.is_empty());
        assert_eq!(log.runs(), 1);
    }
    assert_eq!(env.session.symbol_state(&env.dylib, env.a), None);
    // A failure stays.
    let (unit, _) = Custom::new(&[(env.c, flags)], |responsibility| {
        responsibility.fail(oops());
    });
    env.dylib.define(unit).unwrap();
    for _ in 0..2 {
        let error = env.session.lookup(env.all().weak(env.c)).unwrap_err();
        assert_eq!(names(&error), ["c"]);
    }
}

#[test]
fn removing_symbols() {
    let env = env(0);
    let (unit, log) = env.plain(&[env.a, env.b]);
    env.dylib.define(unit).unwrap();
    let (busy, kept) = env.kept(&[env.c]);
    env.dylib.define(busy).unwrap();
    let pending = env.start(&[env.c], Required::Ready);
    let error = env.dylib.remove(&[env.a, env.d]).unwrap_err();
    assert!(matches!(error, SessionError::NotFound(_)));
    assert_eq!(names(&error), ["d"]);
    let error = env.dylib.remove(&[env.a, env.c]).unwrap_err();
    assert!(matches!(error, SessionError::InFlight(_)));
    assert!(log.discards().is_empty());
    env.dylib.remove(&[env.a]).unwrap();
    assert_eq!((log.discards(), log.drops()), (vec![env.a], 0));
    assert!(matches!(env.failing(&[env.a]), SessionError::NotFound(_)));
    env.dylib.remove(&[env.b]).unwrap();
    assert_eq!(log.drops(), 1);
    finish(take(&kept));
    pending.wait().unwrap();
    env.dylib.remove(&[env.c]).unwrap();
    assert_eq!(env.dylib.ready(env.c), None);
    // And its tracker afterwards, which crashes ORC.
    env.dylib.default_tracker().unwrap().remove().unwrap();
    env.dylib
        .define(env.plain(&[env.a, env.b, env.c]).0)
        .unwrap();
    env.dylib.lookup(env.c).unwrap();
}

#[test]
fn flags_lookup_does_not_materialize() {
    let env = env(0);
    let (unit, log) = env.plain_flags(&[(env.a, EXPORTED | Flags::CALLABLE), (env.b, EXPORTED)]);
    env.dylib.define(unit).unwrap();
    let lookup = env.all().symbol(env.a).weak(env.c).kind(LookupKind::Dlsym);
    let flags = env.session.lookup_flags(lookup).unwrap();
    assert_eq!(flags, [(env.a, EXPORTED | Flags::CALLABLE)]);
    assert_eq!(log.runs(), 0);
    let lookup = env.all().symbol(env.c);
    assert_eq!(names(&env.session.lookup_flags(lookup).unwrap_err()), ["c"]);
}

#[test]
fn link_orders() {
    let env = env(0);
    let dylibs: Vec<_> = ["p", "q", "r", "s"]
        .map(|name| env.session.create_dylib(name).unwrap())
        .into();
    let all = Visibility::All;
    let shown = |order: &[uruk_session::Dylib]| {
        order
            .iter()
            .map(|d| d.name().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let [p, q, r, s] = [0, 1, 2, 3].map(|n| dylibs[n].clone());
    // A diamond with a cycle: p -> q r, q -> s, r -> s, s -> p.
    p.add_to_link_order(&q, all).unwrap();
    p.add_to_link_order(&q, Visibility::Exported).unwrap();
    p.add_to_link_order(&r, all).unwrap();
    assert_eq!(p.link_order(), [(q.clone(), all), (r.clone(), all)]);
    q.add_to_link_order(&s, all).unwrap();
    r.add_to_link_order(&s, all).unwrap();
    s.add_to_link_order(&p, all).unwrap();
    assert_eq!(shown(&p.depth_first_order()), "p q s r");
    assert_eq!(shown(&s.depth_first_order()), "s p q r");
    p.replace_in_link_order(&q, &s, all).unwrap();
    assert_eq!(shown(&p.depth_first_order()), "p s r");
    p.remove_from_link_order(&s).unwrap();
    assert_eq!(shown(&p.depth_first_order()), "p r s");
    p.set_link_order(&[(q.clone(), all)]).unwrap();
    q.define(AbsoluteSymbols::new([(env.a, 7, EXPORTED)]))
        .unwrap();
    let lookup = uruk_session::Lookup::new(p.search_order()).symbol(env.a);
    assert_eq!(env.session.lookup(lookup).unwrap().address(env.a), Some(7));
    assert_eq!(env.session.dylib("q"), Some(q));
    assert!(matches!(
        env.session.create_dylib("q"),
        Err(SessionError::DylibExists { .. })
    ));
}

fn alias(name: uruk_session::Symbol, target: uruk_session::Symbol) -> Alias {
    Alias {
        name,
        target,
        flags: EXPORTED,
    }
}

#[test]
fn aliases_and_chains() {
    let env = env(0);
    let (unit, log) = env.plain(&[env.d]);
    env.dylib.define(unit).unwrap();
    env.dylib
        .alias([
            alias(env.a, env.b),
            alias(env.b, env.c),
            alias(env.c, env.d),
        ])
        .unwrap();
    let found = env.start(&[env.a, env.b], Required::Ready).wait().unwrap();
    assert_eq!(found.address(env.a), Some(address(env.d)));
    assert_eq!(found.address(env.b), Some(address(env.d)));
    assert_eq!(log.runs(), 1);
    // A strong definition overrides a weak alias.
    let [x, y] = ["x", "y"].map(|n| env.session.intern(n));
    let weak = Alias {
        name: x,
        target: env.d,
        flags: EXPORTED | Flags::WEAK,
    };
    env.dylib.alias([weak]).unwrap();
    env.dylib.define(env.plain(&[x]).0).unwrap();
    assert_eq!(env.dylib.lookup(x).unwrap(), address(x));
    // Cycles are errors, in one unit and over two.
    env.dylib.alias([alias(y, y)]).unwrap();
    assert!(
        env.failing(&[y])
            .to_string()
            .contains("failed to materialize")
    );
    let [u, v] = ["u", "v"].map(|n| env.session.intern(n));
    env.dylib.alias([alias(u, v)]).unwrap();
    env.dylib.alias([alias(v, u)]).unwrap();
    for symbol in [u, v] {
        let SessionError::Failed { cause, .. } = env.failing(&[symbol]) else {
            panic!("not failed");
        };
        let cause = cause.unwrap();
        assert!(cause.to_string().contains("cycle"), "{cause}");
    }
}

/// Neither the way down to the first target nor the way back needs a stack as deep as the chain.
#[test]
fn a_long_chain_of_aliases_is_walked_once_and_without_a_deep_stack() {
    for jobs in [0, 2] {
        let env = env(jobs);
        let links: Vec<_> = (0..20_000)
            .map(|n| env.session.intern(&format!("link{n}")))
            .collect();
        for pair in links.windows(2) {
            env.dylib.alias([alias(pair[1], pair[0])]).unwrap();
        }
        env.dylib.define(env.plain(&[links[0]]).0).unwrap();
        let last = links[links.len() - 1];
        assert_eq!(env.dylib.lookup(last).unwrap(), address(links[0]));
        // A cycle that is closed after a walk is found by the next one.
        let [x, y, z] = ["x", "y", "z"].map(|name| env.session.intern(name));
        env.dylib.alias([alias(x, y)]).unwrap();
        assert!(matches!(env.failing(&[x]), SessionError::Failed { .. }));
        env.dylib.alias([alias(y, z)]).unwrap();
        env.dylib.alias([alias(z, y)]).unwrap();
        let error = env.failing(&[x]);
        let causes = std::iter::successors(std::error::Error::source(&error), |e| e.source());
        let text: String = causes.map(ToString::to_string).collect();
        assert!(text.contains("cycle"), "{text}");
    }
}

#[test]
fn reexports_materialize_what_is_asked_for() {
    let env = env(0);
    let library = env.session.create_dylib("LibM").unwrap();
    let [n, k] = ["n", "k"].map(|name| env.session.intern(name));
    let (unit_n, log_n) = env.plain(&[n]);
    let (unit_k, log_k) = env.plain(&[k]);
    library.define(unit_n).unwrap();
    library.define(unit_k).unwrap();
    let [m_n, m_k] = ["M_n", "M_k"].map(|name| env.session.intern(name));
    env.dylib
        .reexport(
            &library,
            Visibility::Exported,
            [alias(m_n, n), alias(m_k, k)],
        )
        .unwrap();
    assert_eq!(env.dylib.lookup(m_n).unwrap(), address(n));
    assert_eq!((log_n.runs(), log_k.runs()), (1, 0));
    let state = env.session.symbol_state(&env.dylib, m_k);
    assert_eq!(state, Some(SymbolState::NeverSearched));
    // An unused lazy re-export can be removed.
    env.dylib.remove(&[m_k]).unwrap();
    assert!(matches!(env.failing(&[m_k]), SessionError::NotFound(_)));
}

#[test]
fn aliases_wait_for_their_target() {
    let env = env(0);
    env.dylib.alias([alias(env.a, env.b)]).unwrap();
    let (unit, kept) = env.kept(&[env.b]);
    env.dylib.define(unit).unwrap();
    let future = env.start(&[env.a], Required::Ready);
    let responsibility = take(&kept);
    resolve(&responsibility).unwrap();
    let state = env.session.symbol_state(&env.dylib, env.a);
    assert_eq!(state, Some(SymbolState::Emitted));
    responsibility.emit(&[]).unwrap();
    assert_eq!(future.wait().unwrap().address(env.a), Some(address(env.b)));
}

#[test]
fn reported_errors_reach_the_reporter() {
    let env = env(0);
    env.session.report(&oops());
    // The reporter also gets failures without a waiting lookup, and panics.
    let (unit, kept) = env.kept(&[env.a, env.b]);
    env.dylib.define(unit).unwrap();
    drop(env.start(&[env.a], Required::Ready));
    take(&kept).fail(oops());
    let count = Arc::clone(&env.reported);
    let len = |reports: &Mutex<Vec<SessionError>>| reports.lock().unwrap().len();
    assert_eq!(len(&count), 1, "the future was told");
    let (unit, _) = Custom::new(&[(env.c, EXPORTED)], |_| panic!("a bad unit"));
    env.dylib.define(unit).unwrap();
    let error = env.failing(&[env.c]);
    assert!(matches!(error, SessionError::Failed { .. }));
    let last = env.reported.lock().unwrap().last().unwrap().to_string();
    assert!(last.contains("a bad unit"), "{last}");
}
