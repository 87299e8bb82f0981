//! Where a dylib's lookups go on.

use uruk::{Dylib, Jit, SessionError, Visibility};

use crate::unit::*;

const SEEN: Visibility = Visibility::Exported;

fn dylibs<const N: usize>(jit: &Jit, names: [&str; N]) -> [Dylib; N] {
    names.map(|name| jit.create_bare_dylib(name).unwrap())
}

fn shown(order: &[Dylib]) -> String {
    let names: Vec<_> = order.iter().map(Dylib::name).collect();
    names.join(" ")
}

#[test]
fn a_dylib_searches_itself_and_then_its_link_order() {
    let jit = Jit::new().unwrap();
    let [p, q, r] = dylibs(&jit, ["p", "q", "r"]);
    p.set_link_order(&[(q.clone(), SEEN), (r.clone(), SEEN)])
        .unwrap();
    p.define(TestUnit::at(&jit, &[("a", 1)])).unwrap();
    q.define(TestUnit::at(&jit, &[("a", 2), ("b", 3)])).unwrap();
    r.define(TestUnit::at(&jit, &[("b", 4), ("c", 5)])).unwrap();
    let found = ["a", "b", "c"].map(|name| p.lookup(name).unwrap());
    assert_eq!(found, [1, 3, 5]);
    // Links are not passed on: who links against `p` does not see `q`.
    let [s] = dylibs(&jit, ["s"]);
    s.add_to_link_order(&p).unwrap();
    assert_eq!(s.lookup("a").unwrap(), 1);
    assert!(s.lookup("b").is_err());
}

#[test]
fn adding_to_a_link_order_again_changes_nothing() {
    let jit = Jit::new().unwrap();
    let [p, q, r] = dylibs(&jit, ["p", "q", "r"]);
    for other in [&q, &r, &q, &r, &q] {
        p.add_to_link_order(other).unwrap();
    }
    assert_eq!(p.link_order(), [(q.clone(), SEEN), (r, SEEN)]);
    // Also where it is seen otherwise.
    p.set_link_order(&[(q.clone(), Visibility::All)]).unwrap();
    p.add_to_link_order(&q).unwrap();
    assert_eq!(p.link_order(), [(q, Visibility::All)]);
}

#[test]
fn a_dylib_in_a_link_order_can_be_replaced_and_removed() {
    let jit = Jit::new().unwrap();
    let [p, q, r, s] = dylibs(&jit, ["p", "q", "r", "s"]);
    for (dylib, value) in [(&q, 1), (&r, 2), (&s, 3)] {
        dylib.define(TestUnit::at(&jit, &[("a", value)])).unwrap();
    }
    p.add_to_link_order(&q).unwrap();
    p.add_to_link_order(&r).unwrap();
    assert_eq!(p.lookup("a").unwrap(), 1);
    p.replace_in_link_order(&q, &s, SEEN).unwrap();
    assert_eq!(p.link_order(), [(s.clone(), SEEN), (r.clone(), SEEN)]);
    assert_eq!(p.lookup("a").unwrap(), 3);
    // A dylib that is not in the link order is neither replaced nor removed.
    p.replace_in_link_order(&q, &p, SEEN).unwrap();
    p.remove_from_link_order(&q).unwrap();
    p.remove_from_link_order(&s).unwrap();
    assert_eq!(p.link_order(), [(r, SEEN)]);
    assert_eq!(p.lookup("a").unwrap(), 2);
}

#[test]
fn only_the_exported_symbols_of_others_are_seen_unless_all_are_asked_for() {
    let jit = Jit::new().unwrap();
    let [p, q] = dylibs(&jit, ["p", "q"]);
    let unit = TestUnit::at(&jit, &[("a", 1)]).without(uruk::Flags::EXPORTED);
    q.define(unit).unwrap();
    p.add_to_link_order(&q).unwrap();
    assert!(p.lookup("a").is_err());
    p.set_link_order(&[(q, Visibility::All)]).unwrap();
    assert_eq!(p.lookup("a").unwrap(), 1);
}

#[test]
fn the_depth_first_order_of_a_tree_lists_each_branch_whole() {
    let jit = Jit::new().unwrap();
    let [p, q, r, s, t] = dylibs(&jit, ["p", "q", "r", "s", "t"]);
    p.add_to_link_order(&q).unwrap();
    p.add_to_link_order(&r).unwrap();
    q.add_to_link_order(&s).unwrap();
    q.add_to_link_order(&t).unwrap();
    assert_eq!(shown(&p.depth_first_order()), "p q s t r");
    assert_eq!(shown(&q.depth_first_order()), "q s t");
    assert_eq!(shown(&t.depth_first_order()), "t");
}

#[test]
fn the_depth_first_order_of_a_diamond_or_a_cycle_lists_each_once() {
    let jit = Jit::new().unwrap();
    let [p, q, r, s] = dylibs(&jit, ["p", "q", "r", "s"]);
    for (from, to) in [(&p, &q), (&p, &r), (&q, &s), (&r, &s)] {
        from.add_to_link_order(to).unwrap();
    }
    assert_eq!(shown(&p.depth_first_order()), "p q s r");
    s.add_to_link_order(&p).unwrap();
    assert_eq!(shown(&p.depth_first_order()), "p q s r");
    assert_eq!(shown(&s.depth_first_order()), "s p q r");
    // A lookup does not walk in circles either.
    assert!(s.lookup("nothing").is_err());
}

#[test]
fn the_process_is_searched_last_or_where_it_is_put_or_not_at_all() {
    let jit = Jit::new().unwrap();
    let usual = jit.create_dylib("usual").unwrap();
    assert!(usual.lookup("strlen").is_ok());
    assert_eq!(usual.link_order().last().unwrap().0, jit.process());
    let [bare, own] = dylibs(&jit, ["bare", "own"]);
    assert!(bare.lookup("strlen").is_err());
    own.define(TestUnit::at(&jit, &[("strlen", 1)])).unwrap();
    usual.add_to_link_order(&own).unwrap();
    let behind = usual.lookup("strlen").unwrap();
    bare.set_link_order(&[(jit.process(), SEEN), (own.clone(), SEEN)])
        .unwrap();
    assert_ne!(bare.lookup("strlen").unwrap(), 1);
    bare.set_link_order(&[(own, SEEN), (jit.process(), SEEN)])
        .unwrap();
    assert_eq!(bare.lookup("strlen").unwrap(), 1);
    // The dylib that was linked explicitly is in front of the process.
    assert_eq!(behind, 1);
}

#[test]
fn dylibs_are_found_by_names_that_are_theirs_alone() {
    let jit = Jit::new().unwrap();
    let [p] = dylibs(&jit, ["p"]);
    assert_eq!(jit.dylib("p"), Some(p));
    assert_eq!(jit.dylib("q"), None);
    for twice in [jit.create_dylib("p"), jit.create_bare_dylib("p")] {
        let error = session(twice.map(drop));
        assert!(matches!(error, SessionError::DylibExists { .. }), "{error}");
    }
}

#[test]
fn calls_find_what_comes_into_the_link_order_later() {
    let (jit, _) = reporting();
    let other = jit.create_dylib("other").unwrap();
    jit.main().allow_missing(true);
    jit.add_ir(
        "m",
        "declare i64 @seven()
         define i64 @f() { %v = call i64 @seven() ret i64 %v }",
    )
    .unwrap();
    assert_eq!(call(&jit, "f"), -1);
    other
        .define(TestUnit::at(&jit, &[("seven()", address(seven))]))
        .unwrap();
    jit.main().add_to_link_order(&other).unwrap();
    assert_eq!(call(&jit, "f"), 7);
}
