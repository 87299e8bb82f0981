//! The calls that a program is expected to make next.

use uruk_tiering::FunctionId;
use uruk_tiering::foresight::{Course, Foresight, Sketch};

fn id(number: u32) -> FunctionId {
    FunctionId(number)
}

/// The callees of a block, and its edges with their chances.
type Block<'a> = (&'a [u32], &'a [(u32, f32)]);

/// A body of blocks.
fn course(blocks: &[Block<'_>], ends: &[u32]) -> Course {
    let mut sketch = Sketch::default();
    sketch.starts.push(0);
    for (number, (calls, edges)) in (0..).zip(blocks) {
        sketch
            .calls
            .extend(calls.iter().map(|&callee| (number, id(callee))));
        sketch.edges.extend_from_slice(edges);
        sketch.starts.push(sketch.edges.len() as u32);
    }
    sketch.ends = ends.to_vec();
    Course::new(&sketch)
}

fn straight(calls: &[u32]) -> Course {
    course(&[(calls, &[])], &[])
}

/// All guesses that may be made now.
fn guesses(foresight: &mut Foresight) -> Vec<u32> {
    std::iter::from_fn(|| foresight.guess())
        .map(|function| function.0)
        .collect()
}

fn program(main: Course) -> Foresight {
    let mut foresight = Foresight::default();
    foresight.called(id(0));
    foresight.add(id(0), main);
    foresight
}

#[test]
fn calls_in_a_row_are_guessed_in_their_order_each_once() {
    let mut foresight = program(straight(&[1, 2, 1, 3]));
    assert_eq!(guesses(&mut foresight), [1, 2, 3]);
    assert_eq!(guesses(&mut foresight), [0; 0]);
    foresight.forget(id(2));
    assert_eq!(guesses(&mut foresight), [2]);
}

#[test]
fn what_a_guess_calls_comes_before_what_follows_it() {
    let mut foresight = program(straight(&[1, 2]));
    assert_eq!(foresight.guess(), Some(id(1)));
    foresight.add(id(1), straight(&[10, 11]));
    assert_eq!(guesses(&mut foresight), [10, 11, 2]);
}

#[test]
fn branches_that_were_passed_are_no_candidates() {
    // 1 or 2, then 3 and 4.
    let blocks: [Block<'_>; 4] = [
        (&[], &[(1, 0.5), (2, 0.5)]),
        (&[1], &[(3, 1.0)]),
        (&[2], &[(3, 1.0)]),
        (&[3, 4], &[]),
    ];
    let mut foresight = program(course(&blocks, &[]));
    let mut early = guesses(&mut foresight);
    early.sort_unstable();
    assert_eq!(early, [1, 2, 3, 4]);
    let mut foresight = program(course(&blocks, &[]));
    foresight.called(id(3));
    assert_eq!(guesses(&mut foresight), [4]);
}

#[test]
fn a_loop_is_left_and_what_ends_the_program_is_not_expected() {
    // A loop that calls 1; 2 in it before an end of the program; then 3.
    let blocks: [Block<'_>; 5] = [
        (&[], &[(1, 1.0)]),
        (&[], &[(2, 0.5), (4, 0.5)]),
        (&[1], &[(1, 0.5), (3, 0.5)]),
        (&[2], &[]),
        (&[3], &[]),
    ];
    let mut foresight = program(course(&blocks, &[3]));
    assert_eq!(guesses(&mut foresight), [3, 1]);
}

#[test]
fn a_return_goes_on_where_the_caller_stands() {
    let mut foresight = program(straight(&[1, 2, 3]));
    foresight.called(id(1));
    foresight.add(id(1), straight(&[4]));
    foresight.called(id(4));
    // 4 calls no function: the rest of 1, and of the program, is expected.
    foresight.called(id(2));
    assert_eq!(guesses(&mut foresight), [3]);
}

#[test]
fn an_order_goes_before_guesses() {
    let mut foresight = program(straight(&[1, 2]));
    foresight.expect([id(9), id(2), id(8)]);
    assert_eq!(guesses(&mut foresight), [9, 2, 8, 1]);
}

#[test]
fn guesses_stop_where_none_comes_true_and_go_on_where_some_do() {
    let calls: Vec<u32> = (1..1000).collect();
    let mut foresight = program(straight(&calls));
    let made = guesses(&mut foresight);
    assert!(made.len() < 120, "{}", made.len());
    for &function in &made {
        foresight.called(id(function));
    }
    assert_eq!(foresight.guesses(), (made.len(), made.len()));
    assert!(foresight.guess().is_some());
    // A guess that could not be compiled does not count.
    let before = foresight.guesses().0;
    let next = foresight.guess().expect("more");
    foresight.unguess(next);
    assert_eq!(foresight.guesses().0, before);
}

#[test]
fn edges_to_nowhere_and_endless_bodies_are_harmless() {
    let odd = course(&[(&[1], &[(7, 1.0), (0, 1.0)]), (&[2], &[(1, 1.0)])], &[9]);
    assert_eq!(guesses(&mut program(odd)), [1]);
    assert_eq!(guesses(&mut program(course(&[], &[]))), [0; 0]);
}

#[test]
fn callers_are_those_of_the_bodies_that_are_known() {
    let mut foresight = program(straight(&[1, 2, 1]));
    assert_eq!(foresight.callers(id(1)), [id(0)]);
    assert_eq!(foresight.callers(id(9)), []);
    foresight.add(id(5), straight(&[1, 9, 9]));
    assert_eq!(foresight.callers(id(1)), [id(0), id(5)]);
    assert_eq!(foresight.callers(id(9)), [id(5)]);
    // Another body.
    foresight.add(id(0), straight(&[2]));
    assert_eq!(foresight.callers(id(1)), [id(5)]);
    foresight.forget(id(5));
    assert_eq!(foresight.callers(id(1)), []);
    assert_eq!(foresight.callers(id(2)), [id(0)]);
}
