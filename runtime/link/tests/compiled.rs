//! Objects that clang makes from C and C++, under all code models, checked by the oracle.

mod support;

use support::{FAR, NEAR, World, compile};
use uruk_base::{SlotAddress, StubAddress};
use uruk_link::{Hint, Resolved};

const C: &str = r#"
#include <stddef.h>
extern int printf(const char *, ...);
extern void *malloc(size_t);
extern int external_data;
extern int weak_data __attribute__((weak));
extern void weak_function(void) __attribute__((weak));
int initialised = 42;
static int zeroed[1000];
const char *const names[] = {"one", "two", "three"};
int (*const table[])(const char *, ...) = {printf, 0};
int common_one;
static int helper(int x) { return x * initialised + zeroed[x & 7]; }
__attribute__((noinline)) int visible(int x) { return helper(x) + external_data; }
int (*take(void))(int) { return visible; }
void *allocate(size_t n) { return malloc(n); }
int compare(void *p) { return p == (void *)visible || p == (void *)printf; }
int tail(int x) { return visible(x + 1); }
int use_weak(void) { if (weak_function) weak_function(); return &weak_data ? weak_data : 0; }
int choose(int x) {
  switch (x) {
  case 0: return visible(1); case 1: return tail(2); case 2: return initialised;
  case 3: printf("%s\n", names[x & 1]); return 3; case 4: return use_weak();
  case 5: return zeroed[5]; default: return common_one;
  }
}
int main(int argc, char **argv) { zeroed[argc & 7] = argc; return choose(argc) + table[0]("x"); }
"#;

const CPP: &str = r#"
extern "C" int printf(const char *, ...);
struct Error { int code; virtual ~Error(); };
Error::~Error() {}
struct Guard { int *p; ~Guard() { ++*p; } };
template <class T> inline T twice(T x) { static T last; last = x; return x + last; }
struct Base { virtual int f() { return 1; } virtual ~Base() {} };
struct Derived : Base { int f() override { return twice(2); } };
__attribute__((noinline)) void thrower(int x) { if (x > 2) throw Error{}; if (x > 1) throw 5; }
int catcher(int x) {
  int count = 0;
  try { Guard g{&count}; thrower(x); }
  catch (Error &e) { return e.code; }
  catch (int i) { return i; }
  catch (...) { return -1; }
  return count;
}
struct Global { Global() { printf("up\n"); } ~Global() { printf("down\n"); } } global;
int run(Base *b) { return b->f() + dynamic_cast<Derived *>(b)->f(); }
int make() { Derived d; return run(&d) + twice(3) + (int)twice(1.5); }
"#;

const TLS: &str = r#"
__thread int exported = 5;
static __thread int hidden_one;
static __thread int hidden_two = 7;
extern __thread int elsewhere;
int *a(void) { return &exported; }
int b(void) { return hidden_one++ + hidden_two++; }
int c(void) { return elsewhere; }
int *d(void) { return &hidden_one; }
int *where = 0;
"#;

fn models() -> Vec<Vec<&'static str>> {
    let mut all = Vec::new();
    for level in ["-O0", "-O2"] {
        for pic in ["-fPIC", "-fno-pic", "-fPIE"] {
            for model in ["-mcmodel=small", "-mcmodel=medium", "-mcmodel=large"] {
                all.push(vec![level, pic, model]);
                all.push(vec![
                    level,
                    pic,
                    model,
                    "-fno-plt",
                    "-ffunction-sections",
                    "-fdata-sections",
                ]);
            }
        }
    }
    all
}

/// Externals in reach, with a slot for functions.
fn near() -> World {
    let mut world = World {
        otherwise: Some(Resolved::stub(StubAddress(NEAR), SlotAddress(NEAR + 0x800))),
        ..World::default()
    };
    world
        .externals
        .insert("external_data".into(), Resolved::at(NEAR + 0x100));
    world.externals.insert(
        "elsewhere".into(),
        Resolved {
            static_tls: Some(-64),
            ..Resolved::thread_local(2, 0x30)
        },
    );
    world
}

/// Low addresses, for code that is not position-independent.
fn low() -> World {
    let mut world = near();
    world.at.code = 0x40_0000;
    world.at.read_only = 0x80_0000;
    world.at.read_write = 0xc0_0000;
    world.otherwise = Some(Resolved::at(0x10_0000));
    world
        .externals
        .insert("external_data".into(), Resolved::at(0x18_0000));
    world
}

#[test]
fn c_links_in_every_code_model() {
    for flags in models() {
        let Some(bytes) = compile("c", C, &flags) else {
            return;
        };
        for merge in [false, true] {
            for hint in [Hint::Unknown, Hint::Near] {
                let mut world = if flags.contains(&"-fPIC") {
                    near()
                } else {
                    low()
                };
                world.options.merge_read_only = merge;
                world.hint = hint;
                world
                    .link(&[&bytes])
                    .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
            }
        }
    }
}

#[test]
fn far_functions_are_reached_from_position_independent_code() {
    for flags in models() {
        if !flags.contains(&"-fPIC") {
            continue;
        }
        let Some(bytes) = compile("c", C, &flags) else {
            return;
        };
        let mut world = near();
        world.otherwise = Some(Resolved::at(FAR));
        world
            .externals
            .insert("external_data".into(), Resolved::at(FAR + 0x100));
        world
            .link(&[&bytes])
            .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    }
}

#[test]
fn cpp_links_with_exceptions_and_templates() {
    for flags in models() {
        let Some(bytes) = compile("cc", CPP, &flags) else {
            return;
        };
        let position_independent = flags.contains(&"-fPIC");
        let mut world = if position_independent { near() } else { low() };
        let image = world
            .link(&[&bytes])
            .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
        assert!(
            image.linked.fdes.len() >= 8,
            "{flags:?}: {}",
            image.linked.dump()
        );
        assert_eq!(image.linked.init.len(), 1);
        // The same file twice stands for two files that share templates: strong names collide, with
        // an error.
        let error = world.error(&[&bytes, &bytes]).to_string();
        assert!(error.contains("is defined in 0.o and in 1.o"), "{error}");
        world.options.merge_read_only = true;
        world.prune = Some(vec!["_Z4makev"]);
        let pruned = world
            .link(&[&bytes])
            .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
        if flags.contains(&"-ffunction-sections") {
            assert!(pruned.linked.fdes.len() < image.linked.fdes.len());
            assert!(!pruned.definitions.contains_key("_Z7catcheri"));
        }
        assert!(pruned.definitions.contains_key("_Z4makev"));
    }
}

#[test]
fn thread_locals_link_in_every_model() {
    for level in ["-O0", "-O2"] {
        for pic in ["-fPIC", "-fPIE", "-fno-pic"] {
            for model in [
                "global-dynamic",
                "local-dynamic",
                "initial-exec",
                "local-exec",
            ] {
                for dialect in ["gnu", "gnu2"] {
                    for plt in ["-fplt", "-fno-plt"] {
                        let model = format!("-ftls-model={model}");
                        let dialect = format!("-mtls-dialect={dialect}");
                        let flags = [level, pic, &model, &dialect, plt];
                        let Some(bytes) = compile("c", TLS, &flags) else {
                            return;
                        };
                        let world = if pic == "-fPIC" { near() } else { low() };
                        world
                            .link(&[&bytes])
                            .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
                        let mut far = world.clone();
                        far.otherwise = Some(Resolved::at(FAR));
                        far.link(&[&bytes])
                            .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
                    }
                }
            }
        }
    }
    for flags in [["-fPIC", "-mcmodel=large"], ["-fPIC", "-mcmodel=medium"]] {
        let Some(bytes) = compile("c", TLS, &flags) else {
            return;
        };
        near()
            .link(&[&bytes])
            .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    }
}

#[test]
fn tls_without_static_space_keeps_general_dynamic_and_refuses_the_rest() {
    let mut world = near();
    world.at.tls = Some(uruk_link::TlsPlace {
        module: 7,
        static_offset: None,
    });
    let Some(bytes) = compile("c", TLS, &["-O2", "-fPIC"]) else {
        return;
    };
    world
        .link(&[&bytes])
        .expect("general dynamic needs no static space");
    for flags in [
        ["-ftls-model=initial-exec", "-fPIC"],
        ["-fPIC", "-mtls-dialect=gnu2"],
    ] {
        let Some(bytes) = compile("c", TLS, &flags) else {
            return;
        };
        let error = world.error(&[&bytes]).to_string();
        assert!(
            error.contains("needs a static thread-local offset"),
            "{error}"
        );
    }
    world.at.tls = None;
    let error = world.error(&[&bytes]).to_string();
    assert!(error.contains("no place for thread-locals"), "{error}");
}

const IFUNC: &str = r#"
static int fast(int x) { return x; }
static int slow(int x) { return x + 1; }
extern int external_data;
static int (*pick(void))(int) { return external_data ? fast : slow; }
int chosen(int) __attribute__((ifunc("pick")));
static int hidden_choice(int) __attribute__((ifunc("pick")));
int (*pointer)(int) = chosen;
int call(int x) { return chosen(x) + hidden_choice(x); }
int tail(int x) { return chosen(x); }
int (*address(void))(int) { return chosen; }
int same(int (*f)(int)) { return f == chosen; }
"#;

#[test]
fn ifuncs_have_one_address_and_a_word() {
    for flags in models() {
        let Some(bytes) = compile("c", IFUNC, &flags) else {
            return;
        };
        let world = if flags.contains(&"-fPIC") {
            near()
        } else {
            low()
        };
        let image = world
            .link(&[&bytes])
            .unwrap_or_else(|e| panic!("{flags:?}: {e}"));
        assert!(!image.linked.ifuncs.is_empty());
        let pointer = image.word(image.address("pointer"));
        assert_eq!(pointer, Some(image.address("chosen")), "{flags:?}");
    }
}

#[test]
fn constructors_run_by_priority_and_destructors_backwards() {
    let source = r#"
    #define F(name, kind, n) __attribute__((kind(n))) void name(void) {}
    F(late, constructor, 500) F(early, constructor, 200)
    F(down_late, destructor, 500) F(down_early, destructor, 200)
    __attribute__((constructor)) void last(void) {}
    __attribute__((destructor)) void first_down(void) {}
    "#;
    for flag in ["-fno-use-init-array", "-fuse-init-array"] {
        let Some(bytes) = compile("c", source, &[flag]) else {
            return;
        };
        let image = near().link(&[&bytes]).expect("links");
        let names = |list: &[uruk_link::Init]| -> Vec<&str> {
            let name = |init: &uruk_link::Init| {
                let found = image
                    .definitions
                    .iter()
                    .find(|(_, at)| **at == init.address);
                found.expect("a function").0.as_str()
            };
            list.iter().map(name).collect()
        };
        assert_eq!(
            names(&image.linked.init),
            ["early", "late", "last"],
            "{flag}"
        );
        let down = names(&image.linked.fini);
        assert_eq!(down, ["first_down", "down_late", "down_early"], "{flag}");
    }
}

#[test]
fn one_comdat_of_each_key_wins_with_its_constructor() {
    let shared = r#"
    extern "C" int started();
    template <class T> struct Once { static int value; };
    template <class T> int Once<T>::value = started();
    inline int counter() { static int n; return ++n; }
    struct Shape { virtual int area() { return counter(); } };
    "#;
    let one = format!("{shared} int first() {{ return Once<int>::value + Shape().area(); }}");
    let two = format!(
        "{shared} int second() {{ Shape s; Shape *p = &s; return Once<int>::value + p->area(); }}"
    );
    let flags = ["-O0", "-fPIC"];
    let (Some(one), Some(two)) = (compile("cc", &one, &flags), compile("cc", &two, &flags)) else {
        return;
    };
    let separate = near().link(&[&two]).expect("links").linked;
    let image = near().link(&[&one, &two]).expect("links");
    assert_eq!(separate.init.len(), 1);
    assert_eq!(image.linked.init.len(), 1, "{}", image.linked.dump());
    let counters = image
        .linked
        .map
        .iter()
        .filter(|m| m.name.contains("_Z7counterv"));
    assert_eq!(counters.count(), 1);
    // Lost to another image: the variable's group is dropped, constructor included.
    let mut world = near();
    world.discard = vec!["_ZN4OnceIiE5valueE", "_ZGVN4OnceIiE5valueE"];
    let image = world.link(&[&two]).expect("links");
    assert_eq!(image.linked.init.len(), 0, "{}", image.linked.dump());
    assert!(!image.definitions.contains_key("_ZN4OnceIiE5valueE"));
}

#[test]
fn common_weak_and_start_stop_resolve_across_objects() {
    let one = r#"
    int shared[4]; int defined_elsewhere; __attribute__((weak)) int f(void) { return 1; }
    __attribute__((section("my_list"), used)) static int a = 1;
    extern int __start_my_list[], __stop_my_list[], __start_none[] __attribute__((weak));
    int count(void) { return __stop_my_list - __start_my_list + (__start_none != 0); }
    int call(void) { return f() + shared[3] + defined_elsewhere; }
    static int local(void) { return 10; } int use1(void) { return local(); }
    int with_alias(void) { return 5; }
    extern __typeof(with_alias) alias __attribute__((alias("with_alias")));
    "#;
    let two = r#"
    int shared[16] __attribute__((aligned(64))); int defined_elsewhere = 3; int f(void) { return 2; }
    __attribute__((section("my_list"), used)) static int b[2] = {2, 3};
    static int local(void) { return 20; } int use2(void) { return local(); }
    "#;
    let flags = ["-fcommon", "-O1", "-fPIC"];
    let (Some(one), Some(two)) = (compile("c", one, &flags), compile("c", two, &flags)) else {
        return;
    };
    let image = near().link(&[&one, &two]).expect("links");
    assert_eq!(image.address("shared") % 64, 0);
    let content = image.linked.read_write.len() as u64;
    let end = support::READ_WRITE + content + image.zero_fill;
    assert_eq!(image.address("shared") + 64, end, "the larger of both");
    assert!(
        image.address("shared") >= support::READ_WRITE + content,
        "zero-filled"
    );
    assert_eq!(image.address("alias"), image.address("with_alias"));
    let f = image
        .linked
        .map
        .iter()
        .find(|m| m.object == 1 && m.name.as_ref() == ".text");
    let f = f.expect("text of the second file");
    assert!(
        (f.address..f.address + f.size).contains(&image.address("f")),
        "strong over weak"
    );
}

#[test]
fn rust_objects_link() {
    let source = r#"
    #![crate_type = "lib"]
    use std::collections::BTreeMap;
    thread_local! { static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(3) }; }
    pub static NAMES: [&str; 2] = ["a", "b"];
    pub fn work(n: u32) -> Result<String, std::num::ParseIntError> {
        let mut map = BTreeMap::new();
        for i in 0..n { map.insert(i, format!("{i}{}", NAMES[i as usize & 1])); }
        COUNT.with(|c| c.set(c.get() + 1));
        let caught = std::panic::catch_unwind(|| "7".parse::<u32>());
        caught.unwrap().map(|x| map.remove(&x).unwrap_or_default())
    }
    "#;
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (input, output) = (dir.join("rust_object.rs"), dir.join("rust_object.o"));
    std::fs::write(&input, source).expect("the source can be written");
    for level in ["0", "2"] {
        let run = std::process::Command::new("rustc")
            .args([
                "--edition=2024",
                "--emit=obj",
                "-C",
                &format!("opt-level={level}"),
            ])
            .args(["-C", "codegen-units=1"])
            .arg("-o")
            .args([&output, &input])
            .output();
        let Ok(run) = run else {
            eprintln!("skipped: rustc is not installed");
            return;
        };
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        let bytes = std::fs::read(&output).expect("rustc wrote an object");
        let mut world = near();
        let image = world.link(&[&bytes]).expect("links");
        assert!(image.linked.fdes.len() > 1);
        world.otherwise = Some(Resolved::at(FAR));
        world.options.merge_read_only = true;
        world.link(&[&bytes]).expect("links, far");
    }
}
