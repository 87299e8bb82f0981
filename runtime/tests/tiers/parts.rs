//! Where time went: every part has its time after a run, and together they are no more than the
//! process used. The only test of its process, whose processor time is compared with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk::{Baseline, Event, Jit, Part, Spent, Tier};
use uruk_testing::in_own_process;

const FUNCTIONS: usize = 40;

/// Functions that call each other in turn, with data of their own.
fn program() -> String {
    let mut text = String::from("define i64 @f0(i64 %x) { ret i64 %x }\n");
    for number in 1..FUNCTIONS {
        let below = number - 1;
        text += &format!(
            "@d{number} = global [4 x i64] [i64 {number}, i64 2, i64 3, i64 4]
             define i64 @f{number}(i64 %x) {{
               %d = load i64, ptr @d{number}
               %y = add i64 %x, %d
               %z = call i64 @f{below}(i64 %y)
               ret i64 %z
             }}\n"
        );
    }
    text
}

#[test]
fn parts_are_there_and_are_no_more_than_the_whole() {
    if !in_own_process(
        module_path!(),
        "parts_are_there_and_are_no_more_than_the_whole",
    ) {
        return;
    }
    let untimed = Jit::new().expect("a session");
    assert_eq!(untimed.stats().parts, None, "nobody asked");
    drop(untimed);

    let published: Arc<std::sync::Mutex<u32>> = Arc::default();
    let told = Arc::clone(&published);
    let jit = Jit::builder()
        .jobs(1)
        .speculate(false)
        .baseline(Baseline::On)
        .time_parts(true)
        .on_event(move |event| {
            if let Event::Published { .. } = event {
                *told.lock().expect("no panic") += 1;
            }
        })
        .build()
        .expect("a session");
    jit.add_ir("m", &program()).expect("valid IR");
    let last = format!("f{}", FUNCTIONS - 1);
    // SAFETY: a function of the program.
    let call = unsafe { jit.function::<extern "C" fn(i64) -> i64>(&last) }.expect("typed");
    let sum = (FUNCTIONS * (FUNCTIONS - 1) / 2) as i64;
    assert_eq!(call.call(2), sum + 2);
    jit.compile_at(&last, Tier::Optimized).expect("compiles");

    // The last caller goes on before its worker has ended the part.
    let missing = |parts: &uruk::PartStats| -> Vec<Part> {
        let there = |part| parts.of(part).wall > Duration::ZERO;
        let mut all = Part::ALL.to_vec();
        all.retain(|&part| part != Part::Warming && !there(part));
        all
    };
    let start = Instant::now();
    let parts = loop {
        let parts = jit.stats().parts.expect("measured");
        if missing(&parts).is_empty() || start.elapsed() > Duration::from_secs(60) {
            break parts;
        }
        std::thread::yield_now();
    };
    assert_eq!(missing(&parts), [], "{parts:?}");
    let known: Duration = parts.parts.iter().map(|(_, spent)| spent.cpu).sum();
    assert!(parts.before > Duration::ZERO);
    assert!(parts.before + known <= parts.process, "{parts:?}");
    assert_eq!(parts.before + known + parts.rest(), parts.process);
    // A part that is nothing but computing has processor time.
    for part in [Part::Emitting, Part::Linking] {
        let Spent { cpu, .. } = parts.of(part);
        assert!(cpu > Duration::ZERO, "{part:?} {parts:?}");
    }
    let (calls, waited) = parts.waiting;
    assert_eq!(calls, FUNCTIONS as u64, "{parts:?}");
    assert!(waited > Duration::ZERO);
    assert!(*published.lock().expect("no panic") >= FUNCTIONS as u32);
}
