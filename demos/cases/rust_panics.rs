// Panics caught and resumed, panics in destructors, overflow and index checks, and at
// last a panic while panicking, which aborts.
// signal: SIGABRT
// gate: D
use std::hint::black_box;
use std::panic::{self, AssertUnwindSafe};

struct Guard(u32);

impl Drop for Guard {
    fn drop(&mut self) {
        println!("guard {} {}", self.0, std::thread::panicking());
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

#[inline(never)]
fn checked(which: u32) -> u32 {
    let _guard = Guard(which);
    let list: Vec<u32> = black_box(vec![1, 2, 3]);
    match which {
        0 => list[black_box(9)],
        1 => black_box(1) / black_box(0),
        2 => black_box(None::<u32>).unwrap(),
        3 => black_box("x").parse::<u32>().expect("a number"),
        4 => black_box(&"text"[..]).split_at(black_box(99)).0.len() as u32,
        5 => *Box::<dyn std::any::Any>::downcast::<u32>(Box::new(1_u8)).unwrap(),
        _ => 100,
    }
}

fn main() {
    panic::set_hook(Box::new(|_| ()));
    for which in 0..7 {
        let result = panic::catch_unwind(|| checked(which));
        println!("{which}: {:?}", result.ok());
    }
    let result = panic::catch_unwind(AssertUnwindSafe(|| drop(Bomb)));
    println!("{:?}", result.unwrap_err().downcast_ref::<&str>());
    let _ = panic::catch_unwind(|| {
        let _bomb = Bomb;
        panic!("and then the bomb");
    });
}
