//! Facts about callees out of sight change the set of functions that a program needs.

use std::sync::{Arc, Mutex};

use uruk::{Event, Jit, Tier, Tiers};

/// `noinline` keeps the body of `square` out of sight; its result is not wanted.
const SOURCE: &str = "
    define i64 @square(i64 %x) noinline { %y = mul i64 %x, %x ret i64 %y }
    define i64 @twice(i64 %x) {
      %unwanted = call i64 @square(i64 %x)
      %y = add i64 %x, %x
      ret i64 %y
    }";

/// The functions that are compiled when `twice` is called, every one at `tier`.
fn compiled(tier: Tier) -> Vec<String> {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&log);
    let jit = Jit::builder()
        .tiers(Tiers::Fixed(tier))
        .on_event(move |event| {
            if let Event::Compiled { function, .. } = event {
                sink.lock().unwrap().push(function.to_string());
            }
        })
        .build()
        .unwrap();
    jit.add_ir("m", SOURCE).unwrap();
    // SAFETY: a function of that type.
    let twice = unsafe { jit.function::<extern "C" fn(i64) -> i64>("twice") };
    assert_eq!(twice.unwrap().call(21), 42);
    let log = log.lock().unwrap();
    log.clone()
}

#[test]
fn tier_3_drops_calls_of_functions_without_effect() {
    assert_eq!(compiled(Tier::Guided), ["twice"]);
    // Nothing has been inferred where tier 3 has not been.
    assert_eq!(compiled(Tier::Optimized), ["twice", "square"]);
}
