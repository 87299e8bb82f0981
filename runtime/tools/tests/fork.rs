//! Tests of outputs in a forked process.

use uruk_tools::{Code, JitDump, PerfMap};

/// Runs `body` in a child; 0 if it returns true.
fn in_child(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child exits without running code of the test harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!matches!(result, Ok(true)))) };
    }
    let mut status = 0;
    // SAFETY: a valid out pointer; retried after a signal.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {}
    status
}

#[test]
fn outputs_on_both_sides_of_a_fork() {
    let folder = std::env::temp_dir().join(format!("uruk-tools-fork-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut map = PerfMap::create(&folder).unwrap();
    let mut dump = JitDump::create(&folder).unwrap();
    let code = Code {
        name: "f",
        address: 0x1000,
        bytes: &[0xc3],
    };
    map.add(1, 1, "inherited").unwrap();
    dump.load(&code, &[]).unwrap();
    let before = std::fs::metadata(dump.path()).unwrap().len();
    let status = in_child(|| {
        let parents = [map.path().to_owned(), dump.path().to_owned()];
        map.after_fork_child().unwrap();
        dump.after_fork_child().unwrap();
        map.add(2, 2, "child").unwrap();
        dump.load(&code, &[]).unwrap();
        assert!(map.path() != parents[0] && dump.path() != parents[1]);
        assert_eq!(std::fs::metadata(dump.path()).unwrap().len(), before);
        std::fs::read_to_string(map.path()).unwrap() == "1 1 inherited\n2 2 child\n"
    });
    assert_eq!(status, 0);
    assert_eq!(
        std::fs::read_to_string(map.path()).unwrap(),
        "1 1 inherited\n"
    );
    assert_eq!(std::fs::metadata(dump.path()).unwrap().len(), before);
    std::fs::remove_dir_all(&folder).unwrap();
}
