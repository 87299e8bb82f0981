//! All orders of the first SIZE numbers, and how many times a prefix as long as the
//! first number can be reversed until that number is 0: bytes, branches, short
//! copies. The orders come from Heap's method, one exchange each.

use std::process::ExitCode;

#[path = "../include/steady.rs"]
mod steady;

const MOST: usize = 12;

fn flips(order: &[u8]) -> u32 {
    let mut cards = [0; MOST];
    let cards = &mut cards[..order.len()];
    cards.copy_from_slice(order);
    let mut count = 0;
    while cards[0] != 0 {
        let first = usize::from(cards[0]);
        cards[..=first].reverse();
        count += 1;
    }
    count
}

#[derive(Default)]
struct Orders {
    most: u32,
    alternating: i64,
    odd: bool,
}

impl Orders {
    fn look(&mut self, order: &[u8]) {
        let count = flips(order);
        self.most = self.most.max(count);
        self.alternating += i64::from(count) * if self.odd { -3 } else { 2 };
        self.odd = !self.odd;
    }
}

#[inline(never)]
fn all_orders(length: usize) -> Orders {
    let mut order: Vec<u8> = (0..length as u8).collect();
    let mut turn = vec![0; length];
    let mut orders = Orders::default();
    orders.look(&order);
    let mut level = 1;
    while level < length {
        if turn[level] < level {
            let other = if level % 2 == 0 { 0 } else { turn[level] };
            order.swap(other, level);
            orders.look(&order);
            turn[level] += 1;
            level = 1;
        } else {
            turn[level] = 0;
            level += 1;
        }
    }
    orders
}

fn main() -> ExitCode {
    steady::kernel("fannkuch", |size| {
        let orders = all_orders(size.min(MOST));
        (orders.alternating as u64).wrapping_mul(64).wrapping_add(u64::from(orders.most))
    })
}
