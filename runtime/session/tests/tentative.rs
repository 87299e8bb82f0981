//! Definitions that are taken back leave what was there before.
#![allow(unexpected_cfgs, reason = "loom")]
#![cfg(not(loom))]

mod common;

use common::*;
use uruk_session::{Flags, Required, SessionError};

const WEAK: Flags = EXPORTED.with(Flags::WEAK);

#[test]
fn a_weak_definition_comes_back_and_is_not_told() {
    for dropped in [false, true] {
        let env = env(0);
        let (old, log) = env.plain_flags(&[(env.a, WEAK)]);
        env.dylib.define(old).unwrap();
        let tentative = env.dylib.create_tentative_tracker().unwrap();
        let (new, new_log) = env.plain(&[env.a, env.b]);
        tentative.define(new).unwrap();
        assert_eq!((log.discards(), log.drops()), (vec![], 0));
        match dropped {
            false => tentative.remove().unwrap(),
            true => drop(tentative),
        }
        assert_eq!((log.discards(), log.drops()), (vec![], 0));
        assert_eq!(new_log.drops(), 1);
        let found = env.session.lookup(env.all().symbol(env.a)).unwrap();
        check_found(found.get(env.a).unwrap(), env.a);
        assert_eq!((log.runs(), new_log.runs()), (1, 0));
        assert!(matches!(env.failing(&[env.b]), SessionError::NotFound(_)));
    }
}

#[test]
fn what_is_confirmed_stays_and_the_older_unit_is_told() {
    let env = env(0);
    let (old, log) = env.plain_flags(&[(env.a, WEAK), (env.b, WEAK)]);
    env.dylib.define(old).unwrap();
    let tentative = env.dylib.create_tentative_tracker().unwrap();
    tentative.define(env.plain(&[env.a]).0).unwrap();
    let tracker = env.dylib.create_tracker().unwrap();
    tentative.transfer_to(&tracker).unwrap();
    assert_eq!(log.discards(), [env.a]);
    // From here on it is a tracker like any other.
    tracker.remove().unwrap();
    assert!(matches!(env.failing(&[env.a]), SessionError::NotFound(_)));
    env.start(&[env.b], Required::Ready).wait().unwrap();
    // A unit whose last symbol was displaced is dropped when that is confirmed.
    let (old, log) = env.plain_flags(&[(env.c, WEAK)]);
    env.dylib.define(old).unwrap();
    let tentative = env.dylib.create_tentative_tracker().unwrap();
    tentative.define(env.plain(&[env.c]).0).unwrap();
    assert_eq!(log.drops(), 0);
    tentative
        .transfer_to(&env.dylib.default_tracker().unwrap())
        .unwrap();
    assert_eq!((log.discards(), log.drops()), (vec![env.c], 1));
}

#[test]
fn an_older_unit_that_goes_to_work_meanwhile_does_without() {
    let env = env(0);
    let (old, log) = env.plain_flags(&[(env.a, WEAK), (env.b, WEAK)]);
    env.dylib.define(old).unwrap();
    let tentative = env.dylib.create_tentative_tracker().unwrap();
    tentative.define(env.plain(&[env.a]).0).unwrap();
    env.start(&[env.b], Required::Ready).wait().unwrap();
    assert_eq!((log.runs(), log.discards()), (1, vec![env.a]));
    tentative.remove().unwrap();
    assert!(matches!(env.failing(&[env.a]), SessionError::NotFound(_)));
}

#[test]
fn what_was_removed_meanwhile_does_not_come_back() {
    let env = env(0);
    let first = env.dylib.create_tracker().unwrap();
    let second = env.dylib.create_tracker().unwrap();
    let (one, one_log) = env.plain_flags(&[(env.a, WEAK)]);
    let (two, two_log) = env.plain_flags(&[(env.b, WEAK)]);
    first.define(one).unwrap();
    second.define(two).unwrap();
    let tentative = env.dylib.create_tentative_tracker().unwrap();
    tentative.define(env.plain(&[env.a, env.b]).0).unwrap();
    first.remove().unwrap();
    assert_eq!(one_log.drops(), 1, "nothing of it is left");
    // Transferred definitions are restored under the new tracker.
    let third = env.dylib.create_tracker().unwrap();
    second.transfer_to(&third).unwrap();
    tentative.remove().unwrap();
    assert!(matches!(env.failing(&[env.a]), SessionError::NotFound(_)));
    third.remove().unwrap();
    assert_eq!((two_log.runs(), two_log.drops()), (0, 1));
    assert!(matches!(env.failing(&[env.b]), SessionError::NotFound(_)));
}

#[test]
fn a_name_that_was_defined_again_meanwhile_is_left() {
    let env = env(0);
    let (old, log) = env.plain_flags(&[(env.a, WEAK)]);
    env.dylib.define(old).unwrap();
    let tentative = env.dylib.create_tentative_tracker().unwrap();
    tentative.define(env.plain(&[env.a]).0).unwrap();
    env.dylib.remove(&[env.a]).unwrap();
    let (new, new_log) = env.plain(&[env.a]);
    env.dylib.define(new).unwrap();
    tentative.remove().unwrap();
    env.start(&[env.a], Required::Ready).wait().unwrap();
    assert_eq!((log.drops(), new_log.runs()), (1, 1));
}
