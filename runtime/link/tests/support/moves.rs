//! The oracle of moves: bytes moved to an address equal the bytes linked there. An image that
//! cannot move depends on the place of its code, or reports that the code's addresses can get out.

use uruk_link::{Immovable, Linked, Placement, Segment, relocate};

use super::World;

/// Distances of moves in steps, which are [`STEP`] or the code's alignment; near targets stay
/// within 2 GiB.
const DISTANCES: [i64; 3] = [1, 0xdc, -1];
const STEP: usize = 0x1_0000;

/// Links in both layouts at several places and compares with moved bytes. Returns the reason why
/// the image cannot move with `merge_read_only`.
pub fn check(world: &World, files: &[&[u8]]) -> Option<Immovable> {
    let mut last = None;
    for merge in [false, true] {
        let mut world = world.clone();
        world.options.merge_read_only = merge;
        let here = world.link_only(files).expect("links at the first place");
        last = here.linked.immovable;
        let from = world.at.code;
        let step = here.linked.moves.align().max(STEP) as i64;
        let mut differs = false;
        for distance in DISTANCES {
            let to = from.wrapping_add_signed(distance * step);
            let mut elsewhere = world.clone();
            elsewhere.at = Placement {
                code: to,
                ..world.at
            };
            let there = elsewhere.link_only(files).expect("links elsewhere").linked;
            differs |= outside(&here.linked) != outside(&there);
            if last.is_none() {
                compare(&here.linked, &there, from, to);
            }
        }
        match last {
            None => assert!(!differs, "movable, and depends on where the code is"),
            Some(Immovable::Segment { segment, .. }) => {
                assert!(differs, "{segment} is the same everywhere");
                assert!(segment != Segment::Code);
            }
            Some(Immovable::Template { .. } | Immovable::Arrays) => assert!(differs),
            Some(_) => {}
        }
        assert!(last.is_none() || here.linked.moves.is_empty());
    }
    last
}

/// All that a move does not change.
fn outside(linked: &Linked) -> Linked {
    let mut rest = linked.clone();
    rest.code.clear();
    rest.fdes.clear();
    rest.map.clear();
    rest.eh_frame = None;
    rest
}

fn compare(here: &Linked, there: &Linked, from: u64, to: u64) {
    let mut moved = here.code.clone();
    relocate(&mut moved, &here.moves, from, to).expect("in reach");
    if let Some(at) = (0..moved.len()).find(|&at| moved[at] != there.code[at]) {
        panic!("moved to {to:#x}, byte {at:#x} is wrong: {:?}", here.moves);
    }
    let rows: Vec<_> = here.fdes.iter().map(|row| row.moved(from, to)).collect();
    if here.read_only.is_empty() {
        assert_eq!(rows, there.fdes, "rows move with the code");
    }
    relocate(&mut moved, &there.moves, to, from).expect("and back");
    assert_eq!(moved, here.code, "there and back again");
}
