//! Bodies that attract each other, by the leapfrog method: a chain of square roots
//! and divisions over a small array of structures. SIZE is the number of steps.

use std::array;
use std::ops::{Add, Mul, Sub};
use std::process::ExitCode;

#[path = "../include/steady.rs"]
mod steady;

const BODIES: usize = 6;

#[derive(Clone, Copy, Default)]
struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

impl Add for Vector {
    type Output = Vector;

    fn add(self, other: Vector) -> Vector {
        Vector { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }
}

impl Sub for Vector {
    type Output = Vector;

    fn sub(self, other: Vector) -> Vector {
        Vector { x: self.x - other.x, y: self.y - other.y, z: self.z - other.z }
    }
}

impl Mul<f64> for Vector {
    type Output = Vector;

    fn mul(self, by: f64) -> Vector {
        Vector { x: self.x * by, y: self.y * by, z: self.z * by }
    }
}

impl Vector {
    fn squared(self) -> f64 {
        self.x * self.x + self.y * self.y + self.z * self.z
    }
}

struct Body {
    place: Vector,
    speed: Vector,
    mass: f64,
}

/// A heavy body and lighter ones around it, each on a circle slightly tilted.
fn place_bodies() -> [Body; BODIES] {
    const HEAVY: f64 = 1000.0;
    array::from_fn(|i| {
        if i == 0 {
            return Body { place: Vector::default(), speed: Vector::default(), mass: HEAVY };
        }
        let number = i as f64;
        let (radius, turn) = (3.0 + 2.5 * number, 1.3 * number);
        let speed = (HEAVY / radius).sqrt();
        Body {
            place: Vector { x: radius * turn.cos(), y: radius * turn.sin(), z: 0.1 * number },
            speed: Vector { x: -speed * turn.sin(), y: speed * turn.cos(), z: 0.02 * speed },
            mass: 0.2 / number,
        }
    })
}

fn attract(a: &mut Body, b: &mut Body, step: f64) {
    let apart = a.place - b.place;
    let square = apart.squared();
    let strength = step / (square * square.sqrt());
    a.speed = a.speed - apart * (b.mass * strength);
    b.speed = b.speed + apart * (a.mass * strength);
}

fn drift(bodies: &mut [Body], step: f64) {
    for body in bodies {
        body.place = body.place + body.speed * step;
    }
}

#[inline(never)]
fn advance(bodies: &mut [Body], step: f64) {
    drift(bodies, 0.5 * step);
    let mut rest = &mut *bodies;
    while let Some((first, others)) = rest.split_first_mut() {
        others.iter_mut().for_each(|other| attract(first, other, step));
        rest = others;
    }
    drift(bodies, 0.5 * step);
}

fn energy(bodies: &[Body]) -> f64 {
    let mut sum = 0.0;
    for (i, body) in bodies.iter().enumerate() {
        sum += 0.5 * body.mass * body.speed.squared();
        for other in &bodies[..i] {
            sum -= body.mass * other.mass / (body.place - other.place).squared().sqrt();
        }
    }
    sum
}

fn main() -> ExitCode {
    steady::kernel("n-body", |steps| {
        let mut bodies = place_bodies();
        (0..steps).for_each(|_| advance(&mut bodies, 0.001));
        energy(&bodies).to_bits()
    })
}
