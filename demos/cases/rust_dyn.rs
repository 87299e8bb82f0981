// Trait objects, generics, closures, iterators, 128-bit integers, floating-point text,
// a hand-made async executor, and stack-heavy recursion.
// levels: O2 O0+g
// gate: D
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

trait Shape: Debug {
    fn area(&self) -> f64;
    fn boxed(&self) -> Box<dyn Shape>;
}

#[derive(Debug, Clone)]
struct Circle(f64);
#[derive(Debug, Clone)]
struct Sum(Vec<Rc<dyn Shape>>);

impl Shape for Circle {
    fn area(&self) -> f64 {
        self.0 * self.0 * 3.0
    }
    fn boxed(&self) -> Box<dyn Shape> {
        Box::new(self.clone())
    }
}

impl Shape for Sum {
    fn area(&self) -> f64 {
        self.0.iter().map(|shape| shape.area()).sum()
    }
    fn boxed(&self) -> Box<dyn Shape> {
        Box::new(self.clone())
    }
}

struct Hex(u128);

impl Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#034x}", self.0)
    }
}

struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

struct Later(u32);

impl Future for Later {
    type Output = u32;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        if self.0 == 0 {
            return Poll::Ready(7);
        }
        self.0 -= 1;
        Poll::Pending
    }
}

async fn adds(n: u32) -> u32 {
    let mut total = 0;
    for i in 0..n {
        total += Later(i).await;
    }
    total
}

fn block_on<F: Future>(future: F) -> (F::Output, u32) {
    let waker = Waker::from(Arc::new(Nothing));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut polls = 0;
    loop {
        polls += 1;
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, polls);
        }
    }
}

#[inline(never)]
fn ackermann(m: u64, n: u64) -> u64 {
    match (black_box(m), n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn compose(functions: Vec<Box<dyn Fn(i64) -> i64>>) -> impl Fn(i64) -> i64 {
    move |x| functions.iter().fold(x, |value, f| f(value))
}

fn main() {
    let shapes: Vec<Rc<dyn Shape>> = (1..5).map(|i| Rc::new(Circle(f64::from(i))) as _).collect();
    let weak: Vec<Weak<dyn Shape>> = shapes.iter().map(Rc::downgrade).collect();
    let sum = Sum(shapes);
    println!("{} {:?} {}", sum.area(), sum.boxed(), weak.iter().filter(|w| w.upgrade().is_some()).count());
    drop(sum);
    println!("{}", weak.iter().filter(|w| w.upgrade().is_some()).count());
    let value = u128::MAX / black_box(7) * 3 % 1_000_000_007_000_000_009;
    println!("{} {}", Hex(value), value);
    println!("{:?} {} {:e} {:?}", black_box(0.1) + 0.2, f64::MAX, 1.5e-300, "1e400".parse::<f64>());
    println!("{:?}", block_on(adds(6)));
    println!("{}", ackermann(2, 300));
    let all = compose((1..6_i64).map(|k| Box::new(move |x: i64| x * k + 1) as Box<dyn Fn(i64) -> i64>).collect());
    println!("{}", all(3));
    let words = "the quick brown fox jumps over the lazy dog the end";
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    words.split(' ').for_each(|word| *counts.entry(word).or_default() += 1);
    println!("{counts:?}");
    let (even, odd): (Vec<i32>, Vec<i32>) = (0..20).filter(|i| i % 3 != 0).partition(|i| i % 2 == 0);
    println!("{even:?} {:?}", odd.iter().rev().zip(even.windows(2)).last());
}
