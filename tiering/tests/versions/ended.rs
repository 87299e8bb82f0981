//! Ends a function in one step.

use uruk_tiering::{CommitError, Generation, Next, StageError, VersionId};

use super::Case;

/// A function that is ended in one step is never seen as staged.
#[test]
fn a_commit_in_one_step_is_refused_only_beside_a_stage() {
    let mut case = Case::new();
    let first = case.first(1);
    case.run(first);
    let stage = case.versions.stage().unwrap();
    let refused = case.versions.commit(Next::Unbound, |_| true).unwrap_err();
    assert_eq!(refused, StageError::Staged(Generation(0)));
    assert!(stage.abandon().is_empty());
    let done = case.versions.commit(Next::Unbound, |entry| {
        assert_eq!(entry, None);
        true
    });
    let done = done.unwrap().unwrap();
    assert_eq!(done.generation, Generation(1));
    assert_eq!(done.kept.unwrap().version(), VersionId(1));
    let refused = case.versions.commit(Next::Unbound, |_| false).unwrap();
    assert_eq!(refused.unwrap_err(), CommitError::Refused);
    let stage = case.versions.stage().unwrap();
    assert_eq!(stage.published(), None);
    drop(stage);
}
