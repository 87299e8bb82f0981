//! Damaged objects: every prefix, and seeded random changes. The outcome is an
//! error or an image, never a panic.

#[path = "support/any.rs"]
mod any;
mod support;

use any::link_any;
use object::{SectionKind, elf};
use support::compile;
use support::write::Writer;
use uruk_testing::Random;

/// Objects that use much of the format, small enough to try every prefix.
fn subjects() -> Vec<Vec<u8>> {
    let cpp = r#"
    extern thread_local int e; thread_local int t = 3; static thread_local int s;
    struct A { A(); ~A(); virtual int f(); }; A a;
    template <class T> T &one() { static T x; return x; }
    int g(int x) { try { if (x) throw x; A b; return b.f() + t + s + e; } catch (int i) { return i; } }
    int h() { return one<int>() + one<A>().f(); }
    int common[4]; extern int __start_list[]; __attribute__((section("list"))) int l = 4;
    int *p = __start_list;
    "#;
    let c = r#"
    int common[4]; static int f(void) { return 1; } static void *pick(void) { return f; }
    int i(void) __attribute__((ifunc("pick"))); extern int w __attribute__((weak));
    int call(int x) { switch (x) { case 1: return i(); case 2: return common[1]; case 3: return w;
      case 4: return 7; case 5: return 9; } return 0; }
    __attribute__((constructor(200))) void up(void) {}
    "#;
    let mut subjects = vec![by_hand()];
    subjects.extend(compile("cc", cpp, &["-O1", "-fPIC", "-ffunction-sections"]));
    subjects.extend(compile("c", c, &["-O1", "-fno-pic", "-fcommon"]));
    subjects.extend(compile(
        "c",
        c,
        &["-O2", "-fPIC", "-mcmodel=large", "-fno-plt"],
    ));
    subjects
}

fn by_hand() -> Vec<u8> {
    let mut writer = Writer::new();
    let text = writer.section(
        ".text",
        SectionKind::Text,
        &[0xff, 0x15, 0, 0, 0, 0, 0xc3],
        16,
    );
    let data = writer.section("list", SectionKind::Data, &[0; 64], 8);
    let f = writer.define("f", text, 0, 7);
    let external = writer.external("external");
    let stop = writer.external("__stop_list");
    writer.common("common", 16, 8);
    writer.relocate(text, 2, elf::R_X86_64_GOTPCRELX, external, -4);
    writer.relocate(data, 0, elf::R_X86_64_64, f, 0);
    writer.relocate(data, 8, elf::R_X86_64_64, stop, 0);
    writer.finish()
}

#[test]
fn prefixes_never_panic() {
    for bytes in subjects() {
        link_any(&bytes).expect("the whole object links");
        for end in 0..bytes.len() {
            let _ = link_any(&bytes[..end]);
        }
    }
}

#[test]
fn random_damage_never_panics() {
    let mut random = Random::new(0x5eed_5eed_5eed_5eed);
    let (mut linked, mut refused) = (0, 0);
    for bytes in subjects() {
        for _ in 0..6000 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(damaged.len());
                match random.below(4) {
                    0 => damaged[at] ^= 1 << random.below(8),
                    1 => damaged[at] = random.below(256) as u8,
                    2 => damaged[at] = 0xff,
                    // Whole fields, as large as they get.
                    _ => damaged.iter_mut().skip(at).take(8).for_each(|b| *b = 0xff),
                }
            }
            match link_any(&damaged) {
                Ok(_) => linked += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        linked > 100 && refused > 100,
        "{linked} linked, {refused} refused"
    );
}

#[test]
fn objects_may_lie_at_any_address() {
    let bytes = by_hand();
    for shift in 0..8 {
        let mut moved = vec![0; shift];
        moved.extend(&bytes);
        link_any(&moved[shift..]).expect("alignment in memory does not matter");
    }
}
