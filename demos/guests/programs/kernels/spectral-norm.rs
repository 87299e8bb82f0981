//! The largest singular value of a matrix that is computed, never stored, by the
//! power method: closures inside iterators, divisions, sums in order. SIZE is the
//! number of rows.

use std::process::ExitCode;

#[path = "../include/steady.rs"]
mod steady;

const ROUNDS: usize = 2;

/// One over the number at (row, column) when the plane is counted by diagonals.
fn element(row: u32, column: u32) -> f64 {
    let diagonal = row + column;
    1.0 / f64::from(diagonal * (diagonal + 1) / 2 + row + 1)
}

fn fill(out: &mut [f64], input: &[f64], element: impl Fn(u32, u32) -> f64) {
    for (row, out) in (0..).zip(out) {
        let products = (0..).zip(input).map(|(column, value)| element(row, column) * value);
        *out = products.sum();
    }
}

#[inline(never)]
fn times(input: &[f64], out: &mut [f64]) {
    fill(out, input, element);
}

#[inline(never)]
fn times_transposed(input: &[f64], out: &mut [f64]) {
    fill(out, input, |row, column| element(column, row));
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn main() -> ExitCode {
    steady::kernel("spectral-norm", |size| {
        let mut u = vec![1.0; size];
        let (mut v, mut between) = (u.clone(), u.clone());
        for _ in 0..ROUNDS {
            times(&u, &mut between);
            times_transposed(&between, &mut v);
            times(&v, &mut between);
            times_transposed(&between, &mut u);
        }
        (dot(&u, &v) / dot(&v, &v)).sqrt().to_bits()
    })
}
