//! Random numbers from a seed , and values that are often at an edge.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use uruk_baseline::ir::Type;
use uruk_testing::Random;

/// A stream of numbers, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Chance(Random);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(Random::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    /// True once in `times` calls.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.0.one_in(times)
    }

    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        self.0.one_of(list)
    }

    /// Random bits of the type, often an edge value.
    pub fn bits(&mut self, ty: Type) -> u128 {
        let edges = edges(ty);
        let mut any = match self.once_in(2) {
            true => edges[self.below(edges.len())],
            false => self.0.wide(),
        };
        if ty.is_int() && self.once_in(3) {
            any >>= self.below(64);
        }
        if matches!(ty, Type::F32 | Type::F64) && self.once_in(3) {
            let small = (self.next() as i16) as f64 / 8.0;
            any = match ty {
                Type::F32 => u128::from((small as f32).to_bits()),
                _ => u128::from(small.to_bits()),
            };
        }
        any & mask(ty)
    }
}

/// A mask of all bits of the type.
pub fn mask(ty: Type) -> u128 {
    let bits = match ty {
        Type::Int(bits) => u32::from(bits),
        other => other.bytes() * 8,
    };
    u128::MAX >> (128 - bits)
}

/// Bits of values at the edges of the type.
pub fn edges(ty: Type) -> Rc<[u128]> {
    thread_local! {
        static KNOWN: RefCell<HashMap<Type, Rc<[u128]>>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| Rc::clone(known.entry(ty).or_insert_with(|| list(ty).into())))
}

fn list(ty: Type) -> Vec<u128> {
    let all = mask(ty);
    match ty {
        Type::Int(bits) => {
            let sign = 1u128 << (bits - 1);
            let list = [
                0,
                1,
                2,
                3,
                5,
                7,
                8,
                10,
                63,
                64,
                100,
                127,
                128,
                255,
                256,
                0x7fff,
                0x8000,
                0xffff,
                0x7fff_ffff,
                0x8000_0000,
                0xffff_ffff,
                0x1_0000_0000,
                0x1234_5678_9abc_def0,
                sign,
                sign - 1,
                sign | 1,
                sign >> 1,
                all,
                all - 1,
                all.wrapping_sub(127),
                all.wrapping_sub(128),
                all / 3,
                all / 7,
            ];
            let mut edges: Vec<u128> = list.into_iter().map(|edge| edge & all).collect();
            edges.sort_unstable();
            edges.dedup();
            edges
        }
        Type::F32 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            -2.5,
            3.0,
            1e10,
            -1e10,
            1e-40,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            127.0,
            128.0,
            255.0,
            256.0,
            32768.0,
            -32769.0,
            2147483600.0,
            2147483648.0,
            4294967000.0,
            4294967296.0,
            9223372000000000000.0,
            9223372036854775808.0,
            18446742974197923840.0,
            0.1,
            16777217.0,
        ]
        .iter()
        .map(|edge: &f32| u128::from(edge.to_bits()))
        .chain([0xff80_0001, 0x7fa0_1234, 0xffc5_4321])
        .collect(),
        Type::F64 => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            -2.5,
            3.0,
            1e10,
            -1e10,
            1e300,
            5e-324,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            127.9,
            128.0,
            255.9,
            256.0,
            32768.0,
            -32769.0,
            2147483647.5,
            2147483648.0,
            4294967295.5,
            4294967296.0,
            9223372036854774784.0,
            9223372036854775808.0,
            18446744073709549568.0,
            18446744073709551616.0,
            0.1,
            9007199254740993.0,
            3.4028236e38,
            1e-46,
        ]
        .iter()
        .map(|edge: &f64| u128::from(edge.to_bits()))
        .chain([
            0xfff0_0000_0000_0001,
            0x7ff4_0000_1234_5678,
            0xfff8_7654_0000_0321,
        ])
        .collect(),
        Type::F80 => vec![
            0,
            0x3fff_8000_0000_0000_0000,
            0xbfff_8000_0000_0000_0000,
            0x4000_c000_0000_0000_0000,
            0x7fff_8000_0000_0000_0000,
            0x403e_ffff_ffff_ffff_fffe,
            0x3ffb_cccc_cccc_cccc_cccd,
        ],
        Type::V64 | Type::V128 => vec![0, all, all / 255, all / 3, 0x8000_0000_0000_0000],
    }
}
