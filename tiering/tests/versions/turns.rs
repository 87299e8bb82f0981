//! Two versions that take turns in the slot.

use uruk_tiering::{Publication, RevertError, VersionId, VersionState};

use super::Case;

/// Two versions take turns; the slot always has the published one, and a publication of another
/// version ends the turns.
#[test]
fn two_versions_take_turns() {
    let mut case = Case::new();
    let first = case.first(1);
    case.run(first);
    let turn = |case: &mut Case, from| {
        let slot = &mut case.slot;
        case.versions.alternate(VersionId(from), |entry| {
            *slot = entry.0;
            true
        })
    };
    let none = RevertError::NoFallback(VersionId(1));
    assert_eq!(turn(&mut case, 1), Err(none));
    let second = case.change(2);
    case.run(second);
    for (from, to) in [(2, 1), (1, 2), (2, 1)] {
        assert_eq!(turn(&mut case, from), Ok(VersionId(to)));
        assert_eq!(case.slot, to * 16);
        let snapshot = case.versions.snapshot();
        let states = [snapshot.published, snapshot.fallback].map(|view| view.unwrap().state);
        assert_eq!(states, [VersionState::Published, VersionState::Retired]);
    }
    let wrong = RevertError::NotPublished {
        asked: VersionId(2),
        published: Some(VersionId(1)),
    };
    assert_eq!(turn(&mut case, 2), Err(wrong));
    let refused = case.versions.alternate(VersionId(1), |_| false);
    assert_eq!((refused, case.slot), (Err(RevertError::Refused), 16));

    // Another version is published: the version that was in the slot is the fallback, the other one
    // is released.
    let third = case.change(3);
    let released = Some(VersionId(2));
    let retired = Some(VersionId(1));
    assert_eq!(
        case.run(third),
        Publication::Published { retired, released }
    );
    assert!(!case.versions.release_loser(VersionId(2)));
    assert!(case.versions.release_loser(VersionId(1)));
    assert_eq!(
        turn(&mut case, 3),
        Err(RevertError::NoFallback(VersionId(3)))
    );
}
