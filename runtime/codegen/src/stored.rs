//! Compiled functions as bytes, for a store that keeps them between runs.
//!
//! Profiles and bodies from other modules mean nothing in another run, so results that used them
//! are not stored. Bytes that were not written by this format yield no result.

use uruk_base::Tier;

use crate::bitcode::Bitcode;
use crate::compile::{Compile, Compiled, Counters};
use crate::dependence::{Dependence, DependenceKind};
use crate::labels::Labels;
use crate::plan::ModulePlan;
use crate::summary::SymbolId;
use uruk_leaving::{Head, Heads, Reason};

/// Version of the written format.
const FORMAT: u32 = 8;
const HASH: usize = blake3::OUT_LEN;

/// Identifies the result of a compile: equal for equal inputs, in any process.
pub type Key = [u8; HASH];

impl Compile {
    /// Whether the result depends only on the inputs of a key.
    pub fn is_storable(&self) -> bool {
        self.profiles.is_empty()
            && self.counters != Counters::Full
            && self.tier != Tier::Guided
            && self.transform.is_none()
            && (self.values.is_empty() || !self.variant.values)
            // Such a continuation depends on two bodies.
            && self.start.as_ref().is_none_or(|it| it.passed.is_none())
    }
}

/// The key of the result of compiling `function` with `how` under `plan`.
pub(crate) fn key_of(
    bitcode: &Bitcode,
    plan: &ModulePlan,
    function: SymbolId,
    how: &Compile,
) -> Key {
    let mut hash = blake3::Hasher::new();
    let mut text = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    text(&FORMAT.to_le_bytes());
    text(env!("CARGO_PKG_VERSION").as_bytes());
    // First: the caller has LLVM open, whose version this then is.
    let cpu = crate::host_cpu();
    text(crate::llvm_version().as_bytes());
    text(cpu.as_bytes());
    text(bitcode.digest());
    text(&function.0.to_le_bytes());
    let flags = [
        how.tier as u8,
        how.counters as u8,
        u8::from(how.contract),
        u8::from(how.alone),
        u8::from(how.lines),
        u8::from(how.variables),
        u8::from(how.leaves),
    ];
    text(&flags);
    text(&how.variant.bits().to_le_bytes());
    if let Some(start) = &how.start {
        text(&start.block.to_le_bytes());
        text(&start.fingerprint.to_le_bytes());
    }
    text(plan.digest());
    *hash.finalize().as_bytes()
}

fn write_heads(heads: &Heads, bytes: &mut Vec<u8>) {
    bytes.extend((heads.counted.len() as u32).to_le_bytes());
    for head in &heads.counted {
        bytes.extend(head.block.to_le_bytes());
        bytes.extend(head.around.unwrap_or(u32::MAX).to_le_bytes());
        // Heads of code from LLVM have one.
        bytes.extend(head.fingerprint.unwrap_or_default().to_le_bytes());
    }
    bytes.extend((heads.refused.len() as u32).to_le_bytes());
    for (reason, count) in &heads.refused {
        let place = Reason::ALL.iter().position(|it| it == reason);
        bytes.push(place.unwrap_or_default() as u8);
        bytes.extend(count.to_le_bytes());
    }
}

fn read_heads<'b>(take: &mut impl FnMut(usize) -> Option<&'b [u8]>) -> Option<Heads> {
    fn number(bytes: &[u8]) -> Option<u32> {
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
    let mut heads = Heads::default();
    for own in 0..number(take(4)?)? {
        let head = Head {
            block: number(take(4)?)?,
            around: Some(number(take(4)?)?).filter(|it| *it != u32::MAX),
            fingerprint: Some(u64::from_le_bytes(take(8)?.try_into().ok()?)),
        };
        if head.around.is_some_and(|it| it >= own) {
            return None;
        }
        heads.counted.push(head);
    }
    for _ in 0..number(take(4)?)? {
        let reason = *Reason::ALL.get(usize::from(*take(1)?.first()?))?;
        heads.refused.push((reason, number(take(4)?)?));
    }
    Some(heads)
}

impl Compiled {
    /// The result as bytes, unless it used bodies of other modules, profiles, or has probes.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if !self.taken.is_empty() || self.probes.is_some() || self.guided != 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.object.len() + 64 + self.depends.len() * 5);
        let labels = match self.labels {
            Labels::None => 0,
            Labels::Inside => 1,
            Labels::Escape => 2,
            Labels::Fixed => 3,
        };
        bytes.extend(FORMAT.to_le_bytes());
        for number in [
            self.instructions,
            self.unit_instructions,
            self.loops,
            self.calls,
            self.callees,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([
            u8::from(self.nested),
            labels,
            u8::from(self.counts),
            u8::from(self.keeps_stack),
        ]);
        write_heads(&self.heads, &mut bytes);
        bytes.extend((self.depends.len() as u32).to_le_bytes());
        for dependence in &self.depends {
            bytes.extend(dependence.symbol.0.to_le_bytes());
            bytes.push(u8::from(dependence.kind == DependenceKind::Body));
        }
        bytes.extend(&self.object);
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        Some(bytes)
    }

    /// Reads the bytes of [`Compiled::to_bytes`]; `None` for any others.
    pub fn from_bytes(bytes: &[u8]) -> Option<Compiled> {
        let (bytes, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH)?)?;
        if blake3::hash(bytes).as_bytes() != hash {
            return None;
        }
        let mut left = bytes;
        let mut take = |count: usize| {
            let (taken, rest) = left.split_at_checked(count)?;
            left = rest;
            Some(taken)
        };
        let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        if number(take(4)?)? != FORMAT {
            return None;
        }
        let mut numbers = [0; 5];
        for place in &mut numbers {
            *place = number(take(4)?)?;
        }
        let [instructions, unit_instructions, loops, calls, callees] = numbers;
        let &[nested, labels, counts, keeps_stack] = take(4)? else {
            return None;
        };
        let labels = match labels {
            0 => Labels::None,
            1 => Labels::Inside,
            2 => Labels::Escape,
            3 => Labels::Fixed,
            _ => return None,
        };
        let heads = read_heads(&mut take)?;
        let count = number(take(4)?)?;
        let mut depends = Vec::new();
        for _ in 0..count {
            let symbol = SymbolId(number(take(4)?)?);
            let kind = match take(1)? {
                [1] => DependenceKind::Body,
                _ => DependenceKind::Fact,
            };
            depends.push(Dependence { symbol, kind });
        }
        Some(Compiled {
            object: left.to_vec(),
            instructions,
            unit_instructions,
            loops,
            nested: nested != 0,
            labels,
            calls,
            callees,
            assumed: 0,
            keeps_stack: keeps_stack != 0,
            counts: counts != 0,
            heads,
            fingerprint: None,
            probes: None,
            guided: 0,
            promoted: 0,
            refused: Vec::new(),
            depends,
            taken: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::plan_alone;
    use crate::{Bitcode, Compile, Compiled, ReaderPool, ReadingRoom, Tier};

    #[test]
    fn what_is_stored_comes_back_and_nothing_else_does() {
        let text = "define i64 @f(i64 %x) { %y = mul i64 %x, 3 ret i64 %y }";
        let bitcode = Bitcode::from_ir_text("m", text).expect("valid");
        let pool = ReaderPool::new(bitcode, 1, &ReadingRoom::new()).expect("readable");
        let mut reader = pool.reader().expect("a reader");
        let plan = plan_alone(pool.summary());
        let symbol = crate::SymbolId(0);
        let how = Compile::at(Tier::Optimized);
        let compiled = reader.compile(&plan, symbol, &how).expect("compiles");
        let bytes = compiled.to_bytes().expect("storable");
        let again = Compiled::from_bytes(&bytes).expect("what was written");
        assert_eq!(format!("{again:?}"), format!("{compiled:?}"));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Compiled::from_bytes(&damaged).is_none(), "byte {at}");
            assert!(Compiled::from_bytes(&bytes[..at]).is_none(), "cut at {at}");
        }
        let key = reader.key(&plan, symbol, &how);
        assert_eq!(key, reader.key(&plan, symbol, &how.clone()));
        assert_ne!(key, reader.key(&plan, symbol, &Compile::baseline()));
    }
}
