//! Checks that the oracle detects errors.

mod support;

use object::{Object as _, ObjectSection as _};
use support::{NEAR, World, compile};
use uruk_base::{SlotAddress, StubAddress};
use uruk_link::Resolved;

const SOURCE: &str = r#"
extern int printf(const char *, ...);
extern int external_data, weak_data __attribute__((weak));
extern void weak_function(void) __attribute__((weak));
int initialised = 42;
const char *const names[] = {"one", "two", "three"};
int (*const table[])(const char *, ...) = {printf, 0};
__attribute__((noinline)) int visible(int x) { return x * initialised + external_data; }
int (*take(void))(int) { return visible; }
int compare(void *p) { return p == (void *)visible || p == (void *)printf; }
int tail(int x) { return visible(x + 1); }
int use_weak(void) { if (weak_function) weak_function(); return &weak_data ? weak_data : 0; }
int choose(int x) {
  switch (x) {
  case 0: return visible(1); case 1: return tail(2); case 2: return initialised;
  case 3: printf("%s\n", names[x & 1]); return 3; case 4: return use_weak();
  default: return table[0]("x");
  }
}
"#;

fn near() -> World {
    let stub = Resolved::stub(StubAddress(NEAR), SlotAddress(NEAR + 0x800));
    let world = World {
        otherwise: Some(stub),
        ..World::default()
    };
    world.external("external_data", Resolved::at(NEAR + 0x100))
}

/// The oracle detects errors: every field of an image, damaged, is noticed.
#[test]
fn the_oracle_notices_every_wrong_field() {
    let Some(bytes) = compile("c", SOURCE, &["-O1", "-fPIC"]) else {
        return;
    };
    let file = support::oracle::File::parse(&*bytes).expect("an object");
    std::panic::set_hook(Box::new(|_| {}));
    let mut unnoticed = Vec::new();
    for section in file.sections() {
        let image = near().link(&[&bytes]).expect("links");
        let index = section.index().0 as u32;
        let Some(home) = image.linked.map.iter().find(|m| m.section == index) else {
            continue;
        };
        if &*home.name == ".eh_frame" {
            continue;
        }
        for (offset, _) in section.relocations() {
            let mut image = near().link(&[&bytes]).expect("links");
            let at = home.address + offset;
            let (base, segment) = match at {
                support::READ_WRITE.. => (support::READ_WRITE, &mut image.linked.read_write),
                support::READ_ONLY.. => (support::READ_ONLY, &mut image.linked.read_only),
                _ => (support::CODE, &mut image.linked.code),
            };
            segment[(at - base) as usize] ^= 1;
            let files = [&*bytes];
            let check = std::panic::AssertUnwindSafe(|| support::oracle::check(&image, &files));
            if std::panic::catch_unwind(check).is_ok() {
                unnoticed.push(format!("{}+{offset:#x}", home.name));
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
