//! Arguments and locals, of what clang writes at -O0 with -g:
//!
//! ```c
//! struct point { int x, y; unsigned flag : 3; struct point *next; };      // line 1
//! enum color { RED, GREEN = 4 };
//! static int total;
//! __attribute__((noinline)) int lowest_of_all(int a, int b) {              // line 4
//!   int sum = a + b;
//!   { int sum = a * 100; total += sum; }
//!   return sum;
//! }
//! __attribute__((noinline)) int middle(struct point *p, enum color c, const char *name) {
//!   int row[3] = {7, 8, 9};
//!   int r = lowest_of_all(p->x - 1, p->y);                                 // line 11
//!   return r + row[1] + c + (name[0] == 'x');
//! }
//! int main(int argc, char **argv) {
//!   struct point p = {1, 2, 5, 0};
//!   p.next = &p;
//!   int r = 0;
//!   for (int i = 0; i < 3; i++) r += middle(&p, GREEN, "one");
//!   return r & 127;
//! }
//! ```

use super::{debug, frame};

const SHAPES: &str = include_str!("shapes.ll");

/// Output of gdb for a command that is announced by `echo`.
fn answer<'t>(text: &'t str, mark: &str) -> &'t str {
    let rest = text.split(mark).nth(1).unwrap_or_default();
    rest.split("=====").next().unwrap_or_default()
}

#[test]
fn frames_have_arguments_and_locals() {
    let commands = [
        "break lowest_of_all",
        "run",
        "bt",
        "next",
        "echo =====inner\\n",
        "info locals",
        "next",
        "echo =====outer\\n",
        "info locals",
        "echo =====arguments\\n",
        "info args",
        "up",
        "echo =====locals\\n",
        "info locals",
        "echo =====struct\\n",
        "print *p",
        "echo =====around\\n",
        "print p->next->next->y + p->flag",
        "echo =====type\\n",
        "ptype p",
        "echo =====function\\n",
        "ptype middle",
        "echo =====end\\n",
        "delete",
        "continue",
    ];
    let Some(text) = debug(SHAPES, "variables", &["--tiers", "1"], &commands) else {
        return;
    };
    assert!(frame(&text, "#0 ").contains("lowest_of_all (a=0, b=2) at "));
    let middle = frame(&text, "#1 ");
    assert!(middle.contains("middle (p=0x") && middle.contains("c=GREEN, name=0x"));
    assert!(middle.contains("\"one\") at ") && middle.contains("shapes.c:11"));
    assert!(frame(&text, "#2 ").contains("main (argc=1, argv=0x"));
    // Of two variables of one name, that of the block comes first, as long as it is there.
    let sums = answer(&text, "=====inner\n").lines();
    assert_eq!(sums.filter(|line| line.starts_with("sum = ")).count(), 2);
    assert!(answer(&text, "=====outer\n").starts_with("sum = 2\n"));
    assert_eq!(
        answer(&text, "=====arguments\n")
            .lines()
            .take(2)
            .collect::<Vec<_>>(),
        ["a = 0", "b = 2"]
    );
    assert!(answer(&text, "=====locals\n").contains("row = {7, 8, 9}"));
    assert!(answer(&text, "=====struct\n").contains("{x = 1, y = 2, flag = 5, next = 0x"));
    assert!(answer(&text, "=====around\n").contains(" = 7"));
    let ty = answer(&text, "=====type\n");
    assert!(ty.contains("unsigned int flag : 3;") && ty.contains("struct point *next;"));
    let ty = answer(&text, "=====function\n");
    assert!(
        ty.contains("int (struct point *, enum color, const char *)"),
        "{ty}"
    );
    assert!(text.contains("exited with code 052"), "goes on to the end");
}

/// Calls `hot` until it has moved up, as far as it does, and once more after that.
const WARM: &str = r#"
    @work = global i64 0
    define i64 @hot(i64 %n) noinline !dbg !10 {
    entry:
      #dbg_value(i64 %n, !40, !DIExpression(), !11)
      br label %loop, !dbg !11
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      %at = load volatile i64, ptr @work, !dbg !12
      %more = add i64 %at, %n, !dbg !12
      store volatile i64 %more, ptr @work, !dbg !12
      %next = add i64 %i, 1, !dbg !12
      %again = icmp ult i64 %next, 1000, !dbg !12
      br i1 %again, label %loop, label %out, !dbg !12
    out:
      ret i64 %more, !dbg !13
    }
    define void @warm() noinline !dbg !30 { ret void, !dbg !31 }
    define i32 @main() !dbg !20 {
    entry:
      br label %loop, !dbg !21
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      %r = call i64 @hot(i64 7), !dbg !21
      %next = add i64 %i, 1, !dbg !21
      %again = icmp ult i64 %next, 300000, !dbg !21
      br i1 %again, label %loop, label %out, !dbg !21
    out:
      call void @warm(), !dbg !22
      %last = call i64 @hot(i64 9), !dbg !22
      ret i32 0, !dbg !22
    }
    !llvm.dbg.cu = !{!0}
    !llvm.module.flags = !{!2}
    !0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
    !1 = !DIFile(filename: "made_up.c", directory: "/source")
    !2 = !{i32 2, !"Debug Info Version", i32 3}
    !4 = !DISubroutineType(types: !{!5, !5})
    !5 = !DIBasicType(name: "long", size: 64, encoding: DW_ATE_signed)
    !6 = !DISubroutineType(types: !{})
    !10 = distinct !DISubprogram(name: "hot", file: !1, line: 31, type: !4, unit: !0, spFlags: DISPFlagDefinition)
    !11 = !DILocation(line: 32, column: 3, scope: !10)
    !12 = !DILocation(line: 33, column: 3, scope: !10)
    !13 = !DILocation(line: 34, column: 3, scope: !10)
    !20 = distinct !DISubprogram(name: "main", file: !1, line: 41, type: !6, unit: !0, spFlags: DISPFlagDefinition)
    !21 = !DILocation(line: 42, column: 3, scope: !20)
    !22 = !DILocation(line: 43, column: 3, scope: !20)
    !30 = distinct !DISubprogram(name: "warm", file: !1, line: 51, type: !6, unit: !0, spFlags: DISPFlagDefinition)
    !31 = !DILocation(line: 52, column: 3, scope: !30)
    !40 = !DILocalVariable(name: "n", arg: 1, scope: !10, file: !1, line: 31, type: !5)
"#;

#[test]
fn a_function_that_moved_up_has_arguments_and_breakpoints() {
    let commands = [
        "break hot",
        "run",
        "echo =====first\\n",
        "bt 1",
        "delete",
        "break warm",
        "continue",
        "delete",
        "break hot",
        "continue",
        "echo =====last\\n",
        "bt 1",
        "echo =====end\\n",
        "delete",
        "continue",
    ];
    let Some(text) = debug(WARM, "warm", &[], &commands) else {
        return;
    };
    assert!(answer(&text, "=====first\n").contains("hot (n=7) at "));
    assert!(answer(&text, "=====last\n").contains("hot (n=9) at "));
    assert!(text.contains("exited normally"), "goes on to the end");
}
