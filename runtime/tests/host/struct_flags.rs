//! Structs with a `bool` in typed functions, where IR has an `i1`.

use uruk::{Jit, Tier};

const ALL_TIERS: [Tier; 3] = [Tier::Baseline, Tier::Optimized, Tier::Guided];

uruk::repr_c! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Flagged {
        value: u64,
        flag: bool,
    }
}

uruk::repr_c! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Flag {
        flag: bool,
    }
}

/// A struct's `bool` may be an `i1` in IR where the bits above it are looked at by neither side.
#[test]
fn a_bool_of_a_struct_is_one_bit_where_that_suffices() {
    let jit = Jit::new().expect("a session");
    jit.add_ir(
        "m",
        "define i64 @count(i64 %value, i1 %flag) {
          %more = zext i1 %flag to i64
          %sum = add i64 %value, %more
          ret i64 %sum
        }
        define i1 @odd(i64 %value) { %odd = trunc i64 %value to i1 ret i1 %odd }
        define { i64, i8 } @bytes(i64 %value) {
          %odd = trunc i64 %value to i1
          %byte = zext i1 %odd to i8
          %one = insertvalue { i64, i8 } poison, i64 %value, 0
          %two = insertvalue { i64, i8 } %one, i8 %byte, 1
          ret { i64, i8 } %two
        }
        define { i64, i1 } @bits(i64 %value) {
          %odd = trunc i64 %value to i1
          %one = insertvalue { i64, i1 } poison, i64 %value, 0
          %two = insertvalue { i64, i1 } %one, i1 %odd, 1
          ret { i64, i1 } %two
        }",
    )
    .expect("it loads");
    // SAFETY: the functions above.
    let (count, odd, bytes, bits) = unsafe {
        (
            jit.function::<extern "C" fn(Flagged) -> u64>("count"),
            jit.function::<extern "C" fn(u64) -> Flag>("odd"),
            jit.function::<extern "C" fn(u64) -> Flagged>("bytes"),
            jit.function::<extern "C" fn(u64) -> Flagged>("bits"),
        )
    };
    let (count, odd, bytes) = (
        count.expect("one bit is looked at"),
        odd.expect("the bits above are cleared"),
        bytes.expect("as clang has it"),
    );
    let Err(refused) = bits else {
        panic!("the bits above are undefined")
    };
    let wanted = "function `bits` is { i64, i1 } (i64), not { i64, i8 } (i64); the bits above an `i1` in \
                  a struct are undefined, so its `bool` is returned as `i8`";
    assert_eq!(refused.to_string(), wanted);
    let address = jit.lookup("count").expect("defined");
    // SAFETY: registers as a struct's, with anything behind the field.
    let raw: extern "C" fn(u64, u64) -> u64 = unsafe { std::mem::transmute(address) };
    for tier in ALL_TIERS {
        for name in ["count", "odd", "bytes"] {
            jit.compile_at(name, tier).expect("it compiles");
        }
        for (value, flag) in [(0xfffe, false), (0xffff, true)] {
            let flagged = Flagged { value, flag };
            assert_eq!(count.call(flagged), value + u64::from(flag));
            assert_eq!(
                raw(value, u64::MAX << 1 | value & 1),
                value + u64::from(flag)
            );
            assert_eq!(odd.call(value), Flag { flag });
            assert_eq!(bytes.call(value), flagged);
        }
    }
}
