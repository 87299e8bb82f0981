//! How long points of the plane take to escape: loops of unpredictable length over a
//! few doubles in registers. SIZE is the side of the picture in points.

use std::process::ExitCode;

#[path = "../include/steady.rs"]
mod steady;

const LIMIT: usize = 120;

#[derive(Clone, Copy)]
struct Complex {
    re: f64,
    im: f64,
}

fn escapes_after(point: Complex) -> usize {
    let mut z = Complex { re: 0.0, im: 0.0 };
    (0..LIMIT)
        .find(|_| {
            let (square_re, square_im) = (z.re * z.re, z.im * z.im);
            z = Complex {
                im: 2.0 * z.re * z.im + point.im,
                re: square_re - square_im + point.re,
            };
            square_re + square_im > 4.0
        })
        .unwrap_or(LIMIT)
}

#[inline(never)]
fn row(size: usize, line: usize) -> u64 {
    let im = -1.25 + 2.5 * line as f64 / size as f64;
    let points = (0..size).map(|column| -2.0 + 2.75 * column as f64 / size as f64);
    points
        .map(|re| escapes_after(Complex { re, im }) as u64)
        .fold(0, |sum: u64, count| sum.wrapping_mul(31).wrapping_add(count))
}

fn main() -> ExitCode {
    steady::kernel("mandelbrot", |size| {
        (0..size).fold(0, |sum: u64, line| sum.wrapping_mul(1_099_511_628_211) ^ row(size, line))
    })
}
