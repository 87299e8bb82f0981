//! The innermost loop: finds hits and marks among many words.
//!
//! Almost all words are neither, so most of a stack is only *skipped*: sixteen words at a time are
//! compared with the range, `word - low < size`, and with the mark, `word == FRAME_MARK`. AVX2 does that
//! in a few cycles where the processor has it. It has no unsigned comparison, but `a < b` is `a ^ 2^63 <
//! b ^ 2^63` with a sign. Words that are not skipped are checked one by one.
//!
//! It runs in signal handlers: no allocation, no lock, no panic. The check for AVX2 is one load, after
//! the first time a few `cpuid`; the kernel saved the vector registers.

use crate::hits::Hits;
use crate::walk::FRAME_MARK;

/// Words that are compared together.
const CHUNK: usize = 16;

/// Notes the hits among `words` up to the first mark; returns how many words were read, and whether the
/// last one is a mark.
#[inline(never)]
pub(crate) fn scan_words(words: &[u64], hits: &mut Hits) -> (usize, bool) {
    let vectors = std::arch::is_x86_feature_detected!("avx2");
    let mut read = 0usize;
    while let Some(rest) = words.get(read..)
        && !rest.is_empty()
    {
        let skipped = match vectors {
            // SAFETY: the processor has AVX2.
            true => unsafe { skip_by_vectors(rest, hits) },
            false => skip(rest, hits),
        };
        read = read.wrapping_add(skipped);
        let rest = rest.get(skipped..).unwrap_or_default();
        let chunk = rest.get(..CHUNK).unwrap_or(rest);
        if let Some(mark) = slowly(chunk, hits) {
            return (read.wrapping_add(mark).wrapping_add(1), true);
        }
        read = read.wrapping_add(chunk.len());
    }
    (words.len(), false)
}

/// Number of words before the first chunk that has a hit or a mark, or that is incomplete.
fn skip(words: &[u64], hits: &Hits) -> usize {
    let chunks = words.chunks_exact(CHUNK);
    let clean = chunks.take_while(|chunk| {
        let found = |&word: &u64| hits.wants(word) | (word == FRAME_MARK);
        !chunk.iter().fold(false, |any, word| any | found(word))
    });
    clean.count().wrapping_mul(CHUNK)
}

/// Like [`skip`], with AVX2.
///
/// # Safety
/// 1. The processor has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn skip_by_vectors(words: &[u64], hits: &Hits) -> usize {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_cmpeq_epi64, _mm256_cmpgt_epi64, _mm256_loadu_si256,
        _mm256_or_si256, _mm256_set1_epi64x, _mm256_testz_si256,
    };
    let (minus_low, size) = hits.range();
    // Adding 2^63 is the same as exclusive or with it.
    let flip = _mm256_set1_epi64x(minus_low.wrapping_add(1 << 63) as i64);
    let size = _mm256_set1_epi64x((size ^ (1 << 63)) as i64);
    let mark = _mm256_set1_epi64x(FRAME_MARK as i64);
    let found = |four: &[u64; 4]| {
        // SAFETY: 32 readable bytes; they need no alignment.
        let four = unsafe { _mm256_loadu_si256(four.as_ptr().cast::<__m256i>()) };
        let wanted = _mm256_cmpgt_epi64(size, _mm256_add_epi64(four, flip));
        _mm256_or_si256(wanted, _mm256_cmpeq_epi64(four, mark))
    };
    let mut skipped = 0usize;
    for [a, b, c, d] in words.as_chunks::<4>().0.as_chunks::<4>().0 {
        let ab = _mm256_or_si256(found(a), found(b));
        let cd = _mm256_or_si256(found(c), found(d));
        let any = _mm256_or_si256(ab, cd);
        if _mm256_testz_si256(any, any) == 0 {
            break;
        }
        skipped = skipped.wrapping_add(CHUNK);
    }
    skipped
}

/// The index of the first mark; notes the hits before it.
fn slowly(words: &[u64], hits: &mut Hits) -> Option<usize> {
    for (index, &word) in words.iter().enumerate() {
        hits.note(word);
        if word == FRAME_MARK {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{scan_words, skip, skip_by_vectors};
    use crate::hits::Hits;
    use crate::walk::FRAME_MARK;
    use uruk_testing::Random;

    /// Ranges low, high, and at the ends of what a word can be; words in them, at their
    /// edges and elsewhere. Against the words one by one.
    #[test]
    fn agrees_with_one_word_at_a_time() {
        let mut numbers = Random::new(1);
        let mut random = || numbers.next();
        let lows = [1, 0x4000_0000, 1 << 47, (1 << 63) - 64, u64::MAX - 8192];
        for round in 0..20_000_u64 {
            let low = lows[(round % 5) as usize];
            let range = low..low + 1 + random() % 4096;
            let rare = random() % 40 + 1;
            let word = |random: &mut dyn FnMut() -> u64| match random() % (6 * rare) {
                0 => FRAME_MARK,
                1 => range.start,
                2 => range.end,
                3 => range.end - 1,
                4 => range.start.wrapping_sub(1),
                5 => range.start + random() % (range.end - range.start),
                other => match other % 3 {
                    0 => 0,
                    1 => random(),
                    _ => range.start.wrapping_add(1 << 63),
                },
            };
            let length = random() % 100;
            let words: Vec<u64> = (0..length).map(|_| word(&mut random)).collect();
            let mark = words.iter().position(|&word| word == FRAME_MARK);
            let read = mark.map_or(words.len(), |at| at + 1);
            let right: BTreeSet<u64> = words[..read]
                .iter()
                .copied()
                .filter(|word| range.contains(word))
                .collect();
            let mut hits = Hits::new(&range, Hits::FIRST);
            assert_eq!(scan_words(&words, &mut hits), (read, mark.is_some()));
            assert_eq!(hits.iter().collect::<BTreeSet<_>>(), right, "{words:x?}");
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: asked right before.
                let vectors = unsafe { skip_by_vectors(&words, &hits) };
                assert_eq!(vectors, skip(&words, &hits), "{range:x?} {words:x?}");
            }
        }
    }
}
