//! The product of two square matrices, row by row, in blocks that fit the cache:
//! what a vectoriser is for. SIZE is the number of rows.

use std::process::ExitCode;

#[path = "../include/steady.rs"]
mod steady;

const BLOCK: usize = 64;

struct Matrix {
    side: usize,
    cells: Vec<f64>,
}

impl Matrix {
    fn random(side: usize, mut seed: u32) -> Matrix {
        let next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(seed >> 20) / 4096.0 - 0.5
        };
        let cells = std::iter::repeat_with(next).take(side * side).collect();
        Matrix { side, cells }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.cells[row * self.side..][..self.side]
    }
}

fn add_scaled(to: &mut [f64], from: &[f64], by: f64) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += by * from);
}

#[inline(never)]
fn multiply(a: &Matrix, b: &Matrix) -> Matrix {
    let side = a.side;
    let mut cells = vec![0.0; side * side];
    for low in (0..side).step_by(BLOCK) {
        let high = side.min(low + BLOCK);
        for (row, out) in cells.chunks_exact_mut(side).enumerate() {
            for k in low..high {
                add_scaled(out, b.row(k), a.row(row)[k]);
            }
        }
    }
    Matrix { side, cells }
}

fn main() -> ExitCode {
    steady::kernel("matmul", |side| {
        let c = multiply(&Matrix::random(side, 1), &Matrix::random(side, 2));
        let trace: f64 = (0..side).map(|i| c.row(i)[side - 1 - i]).sum();
        trace.to_bits() ^ c.cells[side * side / 2].to_bits()
    })
}
