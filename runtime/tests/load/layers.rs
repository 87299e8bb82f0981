//! Changes that embedders make to code on its way: transforms of IR and of objects, link passes, a
//! cache.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use uruk::{DirectoryCache, Error, Jit, ObjectCache, Partition, Tier, Tiers, Transform};

fn call(jit: &Jit, name: &str) -> i64 {
    // SAFETY: functions of the tests, which take nothing and return a number.
    let function = unsafe { jit.function::<extern "C" fn() -> i64>(name) };
    function.expect("a function").call()
}

/// An error with what it was for.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

const TWO: &str = "define i64 @two() { ret i64 2 }
    define i64 @other() { ret i64 5 }";

#[test]
fn ir_is_transformed_at_each_tier_and_what_is_broken_is_refused() {
    // Makes `two` return three.
    let transform = Transform::new(|unit| {
        if unit.function != "two" {
            return Ok(());
        }
        let body = unit
            .module
            .get_functions()
            .find(|f| f.count_basic_blocks() > 0);
        let body = body.ok_or("no body")?;
        let block = body.get_first_basic_block().ok_or("no block")?;
        let end = block.get_terminator().ok_or("no end")?;
        let context = unit.module.get_context();
        let builder = context.create_builder();
        builder.position_before(&end);
        let three = context.i64_type().const_int(3, false);
        builder
            .build_return(Some(&three))
            .map_err(|e| e.to_string())?;
        end.erase_from_basic_block();
        Ok(())
    });
    let jit = Jit::builder().transform_ir(transform).build().unwrap();
    jit.add_ir("m", TWO).unwrap();
    assert_eq!(call(&jit, "two"), 3);
    jit.main().compile_at("two", Tier::Optimized).unwrap();
    assert_eq!(call(&jit, "two"), 3);
    assert_eq!(call(&jit, "other"), 5);

    // Leaves a block without an end, then says no.
    let count = AtomicUsize::new(0);
    let breaking = Transform::new(move |unit| {
        if count.fetch_add(1, Ordering::Relaxed) > 0 {
            return Err(String::from("not this one"));
        }
        let body = unit
            .module
            .get_functions()
            .find(|f| f.count_basic_blocks() > 0);
        let end = body.and_then(|body| body.get_first_basic_block()?.get_terminator());
        end.ok_or("no end")?.erase_from_basic_block();
        Ok(())
    });
    let jit = Jit::builder().transform_ir(breaking).build().unwrap();
    jit.add_ir("m", TWO).unwrap();
    let error = chain(&jit.main().compile("two").unwrap_err());
    assert!(
        error.contains("transform") && error.contains("two"),
        "{error}"
    );
    let error = chain(&jit.main().compile("other").unwrap_err());
    assert!(error.contains("not this one"), "{error}");
}

#[test]
fn objects_are_transformed_before_they_are_linked() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&seen);
    let jit = Jit::builder()
        .transform_objects(Arc::new(move |name, mut object| {
            names.lock().unwrap().push(name.to_owned());
            // `mov eax, 0x12345` becomes `mov eax, 0x777`.
            let wanted = [0xb8, 0x45, 0x23, 0x01, 0x00];
            if let Some(at) = object.windows(5).position(|bytes| bytes == wanted) {
                object[at + 1..at + 4].copy_from_slice(&[0x77, 0x07, 0x00]);
            }
            Ok(object)
        }))
        .build()
        .unwrap();
    jit.add_ir("m", "define i64 @number() { ret i64 74565 }")
        .unwrap();
    assert_eq!(call(&jit, "number"), 0x777);
    assert!(seen.lock().unwrap().iter().any(|name| name == "number"));
    let refusing = Jit::builder().transform_objects(Arc::new(|_, _| Err(String::from("no"))));
    let jit = refusing.build().unwrap();
    jit.add_ir("m", TWO).unwrap();
    let error = jit.main().compile("two").unwrap_err();
    assert!(matches!(error, Error::Layer { .. }), "{error}");
}

#[test]
fn link_passes_see_what_is_defined_and_needed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&seen);
    let jit = Jit::builder()
        .link_pass(Arc::new(move |graph| {
            let mut names = names.lock().unwrap();
            names.extend(graph.undefined().map(|needed| needed.name.to_owned()));
            let forbidden = graph.undefined().any(|needed| needed.name == "system");
            match forbidden {
                true => Err(String::from("system is not for guests")),
                false => Ok(()),
            }
        }))
        .build()
        .unwrap();
    jit.add_ir(
        "m",
        "declare i64 @labs(i64)
         declare i32 @system(ptr)
         define i64 @fine() { %v = call i64 @labs(i64 -4) ret i64 %v }
         define i64 @not_fine() { %v = call i32 @system(ptr null) ret i64 0 }",
    )
    .unwrap();
    assert_eq!(call(&jit, "fine"), 4);
    assert!(seen.lock().unwrap().iter().any(|name| name == "labs"));
    let error = jit.main().compile("not_fine").unwrap_err().to_string();
    assert!(error.contains("system is not for guests"), "{error}");
}

#[derive(Default)]
struct Memory {
    entries: Mutex<HashMap<[u8; 32], Vec<u8>>>,
    hits: AtomicUsize,
}

impl ObjectCache for Memory {
    fn get(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        let found = self.entries.lock().unwrap().get(key).cloned();
        self.hits
            .fetch_add(usize::from(found.is_some()), Ordering::Relaxed);
        found
    }

    fn put(&self, key: &[u8; 32], entry: &[u8]) {
        self.entries.lock().unwrap().insert(*key, entry.to_vec());
    }
}

#[test]
fn compiled_functions_are_kept_over_sessions() {
    let memory = Arc::new(Memory::default());
    let folder = std::env::temp_dir().join(format!("uruk-cache-{}", std::process::id()));
    let text = |value: u32| {
        format!(
            "@v = internal global i64 {value}
             define internal i64 @helper(i64 %x) {{ %y = mul i64 %x, 3 ret i64 %y }}
             define i64 @f() {{
               %v = load i64, ptr @v
               %w = add i64 %v, 1
               store i64 %w, ptr @v
               %r = call i64 @helper(i64 %v)
               ret i64 %r
             }}"
        )
    };
    let run = |cache: Arc<dyn ObjectCache>, value: u32| {
        let jit = Jit::builder()
            .object_cache(cache)
            .tiers(Tiers::Fixed(Tier::Optimized));
        let jit = jit.build().unwrap();
        jit.add_ir("m", &text(value)).unwrap();
        assert_eq!(call(&jit, "f"), i64::from(value) * 3);
        assert_eq!(call(&jit, "f"), i64::from(value) * 3 + 3);
    };
    let cache: Arc<dyn ObjectCache> = Arc::clone(&memory) as _;
    run(Arc::clone(&cache), 5);
    assert_eq!(memory.hits.load(Ordering::Relaxed), 0);
    let kept = memory.entries.lock().unwrap().len();
    assert!(kept > 0);
    run(Arc::clone(&cache), 5);
    assert_eq!(memory.hits.load(Ordering::Relaxed), kept);
    assert_eq!(memory.entries.lock().unwrap().len(), kept);
    // Another module is another matter.
    run(Arc::clone(&cache), 6);
    assert_eq!(memory.hits.load(Ordering::Relaxed), kept);
    // A damaged entry counts as missing.
    for entry in memory.entries.lock().unwrap().values_mut() {
        let middle = entry.len() / 2;
        entry[middle] ^= 0x40;
    }
    run(cache, 5);
    let on_disk = Arc::new(DirectoryCache::new(&folder).unwrap());
    run(Arc::clone(&on_disk) as _, 7);
    let files = || std::fs::read_dir(&folder).unwrap().count();
    let kept = files();
    assert!(kept > 0);
    run(Arc::clone(&on_disk) as _, 7);
    assert_eq!(files(), kept);
    // A link under the name that a draft of this thread had is not followed.
    let victim = folder.join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let (name, thread) = ("00".repeat(32), std::thread::current().id());
    let draft = format!("{name}.{}-{thread:?}", std::process::id());
    std::os::unix::fs::symlink(&victim, folder.join(draft)).unwrap();
    on_disk.put(&[0; 32], b"entry");
    assert_eq!(on_disk.get(&[0; 32]).unwrap(), b"entry");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(files(), kept + 3);
    std::fs::remove_dir_all(&folder).unwrap();
}

const THREE: &str = "define i64 @f() { ret i64 1 }
    define internal i64 @g() { ret i64 2 }
    define i64 @h() { %v = call i64 @g() %w = add i64 %v, 1 ret i64 %w }";

/// Calls `f`, and waits until as many functions are compiled.
fn compiled_with(partition: Partition, count: u64) -> Jit {
    let jit = Jit::builder().tiers(Tiers::Fixed(Tier::Baseline));
    let jit = jit.partition(partition).build().unwrap();
    jit.add_ir("three", THREE).unwrap();
    assert_eq!(call(&jit, "f"), 1);
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while jit.stats().compiled < count {
        assert!(
            std::time::Instant::now() < patience,
            "{count} are not compiled"
        );
        std::thread::yield_now();
    }
    jit
}

#[test]
fn a_module_is_compiled_together_if_asked() {
    let jit = compiled_with(Partition::Module, 3);
    assert_eq!(call(&jit, "h"), 3);
    assert_eq!(jit.stats().compiled, 3);
}

#[test]
fn an_embedder_says_what_is_compiled_together() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&asked);
    let jit = compiled_with(
        Partition::Own(Arc::new(move |module, function| {
            told.lock().unwrap().push(format!("{module} {function}"));
            match function {
                "f" => vec!["h".into(), "nobody".into(), "f".into()],
                _ => Vec::new(),
            }
        })),
        2,
    );
    assert_eq!(*asked.lock().unwrap(), ["three f"]);
    // `h` is ready, `g` is compiled by its call.
    assert_eq!(call(&jit, "h"), 3);
    assert_eq!(jit.stats().compiled, 3);
    let alone = compiled_with(Partition::Function, 1);
    assert_eq!(alone.stats().compiled, 1);
}
