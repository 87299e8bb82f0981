//! LLVM is entered only under a guard, once a caller has demanded it; the guard handles errors for
//! which LLVM would end the process.

use std::sync::mpsc;

use uruk_codegen::{Bitcode, ReaderPool, ReadingRoom, SymbolId, fatal};

/// Metadata that LLVM fails to upgrade: it reports a fatal error while it reads.
const FATAL: &str = "define void @f() \"frame-pointer\"=\"x\" { ret void }
!llvm.module.flags = !{!0}
!0 = !{i32 2, !\"Debug Info Version\", i32 3}";

#[test]
fn entries_without_a_guard_are_found() {
    let guarded = |work: Box<dyn FnOnce() + Send>| {
        let (told, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let lost = told.clone();
            let on_fatal = move |message: &str| lost.send(Some(message.to_owned())).expect("open");
            fatal::guard(on_fatal, work);
            told.send(None).expect("open");
        });
        heard.recv().expect("an end, one way or the other")
    };
    fatal::demand();
    let lost = guarded(Box::new(|| {
        let _ = Bitcode::from_ir_text("fatal.ll", FATAL);
    }));
    assert!(lost.is_some_and(|message| message.contains("Broken module")));

    let (give, take) = mpsc::channel();
    let text = "define i32 @f() { ret i32 1 }";
    let made = guarded(Box::new(move || {
        let bitcode = Bitcode::from_ir_text("m.ll", text).expect("valid");
        let pool = ReaderPool::new(bitcode, 1, &ReadingRoom::new());
        give.send(pool.expect("readable")).expect("open");
    }));
    assert_eq!(made, None);
    let pool = take.recv().expect("made");
    if cfg!(debug_assertions) {
        let entries: [fn(&ReaderPool); 2] = [
            |_| drop(Bitcode::from_ir_text("m.ll", "")),
            |pool| drop(pool.reader()),
        ];
        for entry in entries {
            let entered = std::panic::AssertUnwindSafe(|| entry(&pool));
            assert!(std::panic::catch_unwind(entered).is_err());
        }
    }
    // While LLVM is refused, the same entries return errors, and operations without LLVM work.
    let (text_refused, reader_refused, signature) = fatal::refused(|| {
        let text = Bitcode::from_ir_text("m.ll", "");
        let signature = pool.signature(SymbolId(0));
        let under_guard = fatal::guard(|_| (), || pool.reader().map(drop));
        under_guard.expect("a guard is one within, too");
        (
            text.is_err_and(|cause| cause.is_refusal()),
            pool.reader().is_err_and(|cause| cause.is_refusal()),
            signature.expect("known without"),
        )
    });
    assert!(text_refused && reader_refused);
    assert_eq!(signature, "i32 ()");
    fatal::guard(|_| (), || pool.reader().map(drop)).expect("refused no more");
}
