//! Random lives: no two that overlap share a place, and lives that cross calls survive them.

use super::{Class, NO_HINT, Place, Places, Request, SAVED};
use uruk_testing::Random;

fn requests(random: &mut Random) -> Vec<Request> {
    let count = 1 + random.below(80);
    let mut requests: Vec<Request> = (0..count)
        .map(|at| {
            let from = random.below(60);
            Request {
                from,
                to: from + 1 + random.below(30),
                weight: random.below(12),
                class: [
                    Class::Int,
                    Class::Int,
                    Class::Scalar,
                    Class::Vector,
                    Class::Memory,
                ][random.below(5) as usize],
                crosses: random.below(3) == 0,
                hint: if at > 0 && random.below(2) == 0 {
                    random.below(at)
                } else {
                    NO_HINT
                },
                register: random.below(20) as u8,
                home: if random.below(8) == 0 {
                    16 + 8 * at as i32
                } else {
                    0
                },
            }
        })
        .collect();
    requests.sort_by_key(|request| request.from);
    requests
}

/// Bytes that a place takes, as a range of a common space; registers by their numbers.
fn range(place: Place, class: Class) -> (i64, i64) {
    match place {
        Place::Gpr(register) => (1 << 40 | i64::from(register.number()), 1),
        Place::Xmm(register) => (2 << 40 | i64::from(register.number()), 1),
        Place::Slot(at) if matches!(class, Class::Int | Class::Scalar) => (i64::from(at), 8),
        Place::Slot(at) => (i64::from(at), 16),
        Place::None => panic!("no place"),
    }
}

fn check(requests: &[Request], places: &Places, alone: bool) {
    for (at, (a, place)) in requests.iter().zip(&places.places).enumerate() {
        let (from, size) = range(*place, a.class);
        match (*place, a.class) {
            (Place::Gpr(register), Class::Int) => {
                assert!(!alone);
                let is_saved = SAVED >> register.number() & 1 != 0;
                assert!(is_saved || !a.crosses);
                assert_eq!(is_saved, places.saved >> register.number() & 1 != 0);
            }
            (Place::Xmm(register), Class::Scalar | Class::Vector) => {
                assert!(!alone && !a.crosses && register.number() < 14);
            }
            (Place::Slot(slot), class) => {
                let align = if matches!(class, Class::Int | Class::Scalar) {
                    8
                } else {
                    16
                };
                assert!(slot == a.home || slot % align == 0);
                assert!(slot > 0 || -slot as u32 <= places.frame);
                assert!(slot > 0 || (-slot) as u32 >= 8 * places.saved.count_ones() + size as u32);
            }
            other => panic!("{other:?}"),
        }
        for (b, place) in requests[..at].iter().zip(&places.places) {
            let (other, length) = range(*place, b.class);
            let overlap = from < other + length && other < from + size;
            let together = a.from < b.to && b.from < a.to;
            // Homes of these requests differ unless their slots on entry are the same.
            assert!(!overlap || !(together || alone) || a.home != 0 && a.home == b.home);
        }
    }
}

#[test]
fn lives_that_overlap_are_apart() {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut places = Places::default();
    for _ in 0..3000 {
        let mut requests = requests(&mut random);
        for (at, request) in requests.iter_mut().enumerate() {
            if request.home != 0 {
                request.home = 16 + 16 * at as i32;
            }
        }
        places.assign(&requests, false);
        check(&requests, &places, false);
        places.assign(&requests, true);
        check(&requests, &places, true);
    }
}

#[test]
fn hints_are_taken() {
    let mut places = Places::default();
    let one = Request {
        from: 0,
        to: 5,
        weight: 4,
        class: Class::Int,
        crosses: false,
        hint: NO_HINT,
        register: 7,
        home: 0,
    };
    let two = Request {
        from: 5,
        to: 9,
        hint: 0,
        register: NO_HINT as u8,
        ..one
    };
    places.assign(&[one, two], false);
    assert_eq!(places.places[0], places.places[1]);
    assert_eq!(format!("{:?}", places.places[0]), "Gpr(rdi)");
    // A life with more uses for its length stays in a register.
    let many: Vec<Request> = (0..12)
        .map(|at| Request {
            from: at,
            to: 40,
            weight: if at == 3 { 1 } else { 80 },
            ..one
        })
        .collect();
    places.assign(&many, false);
    let in_frame: Vec<bool> = places
        .places
        .iter()
        .map(|p| matches!(p, Place::Slot(_)))
        .collect();
    assert_eq!(in_frame.iter().filter(|&&is| is).count(), 1);
    assert!(in_frame[3]);
}
