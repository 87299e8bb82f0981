//! Tests that the parser reads the written text form, and that violated requirements are found.

mod ir;

#[test]
fn everything_is_read_as_it_is_written() {
    let text = include_str!("text/everything.ir");
    let function = ir::parse(text).unwrap();
    assert_eq!(ir::text(&function).to_string(), text);
}

#[test]
fn names_and_signs_are_free() {
    let text = "function(i8 %a, ptr %p) -> i8\nstart:\n  %b = add i8 %a, -1 ; a comment\n  \
                %c = phi i8 [start %b]\n  store i8 %b to %p align 1\n  return %b\n";
    let function = ir::parse(text).unwrap();
    let wanted = "function(i8 %0, i64 %1) -> i8\nb0:\n  %2 = add i8 %0, 255\n  \
                  %3 = phi i8 [b0 %2]\n  store i8 %2 to %1 align 1\n  return %2\n";
    assert_eq!(ir::text(&function).to_string(), wanted);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let wrong = [
        (
            "function(i8 %0)\nb0:\n  %1 = add i8 %0\n",
            "line 3: another number of operands",
        ),
        ("function()\nb0:\n  jump b7\n", "line 3: no such block"),
        ("function()\nb0:\n  %0 = add i65 1, 2\n", "line 3: no type"),
        (
            "function(i8 %a)\nb0:\n  %a = add i8 1, 2\n",
            "line 3: a name that another value has",
        ),
        ("function()\nb0:\n  fly\n", "line 3: no such operation"),
        (
            "function()\nb0:\n  return 7\n",
            "line 3: more than an instruction has",
        ),
    ];
    for (text, what) in wrong {
        assert_eq!(ir::parse(text).unwrap_err().to_string(), what);
    }
}

#[test]
fn broken_promises_are_found() {
    let broken = [
        (
            "b0:\n  %2 = add i32 %0, %0\n",
            "a block without a terminator",
        ),
        ("b0:\n  jump b0\n", "the entry has a predecessor"),
        (
            "b0:\n  %2 = add i64 %0, %1\n  return\n",
            "an operand of another type",
        ),
        (
            "b0:\n  %2 = add i32 %3, %0\n  %3 = add i32 %0, 1\n  return\n",
            DOMINATE,
        ),
        (
            "b0:\n  branch 1 b1, b2\nb1:\n  %2 = add i32 %0, 1\n  jump b2\nb2:\n  \
          %3 = add i32 %2, 1\n  return\n",
            DOMINATE,
        ),
        (
            "b0:\n  branch 1 b1, b1\nb1:\n  %2 = phi i32 [b0 1]\n  return\n",
            "a phi that has another number of edges",
        ),
        (
            "b0:\n  %2 = trunc i32 %0 to i32\n  return\n",
            "a conversion between other types",
        ),
        (
            "b0:\n  jump b1\nb1:\n  %2 = alloca 8 align 8\n  return\n",
            "an alloca outside of the entry",
        ),
        (
            "b0:\n  %2 = load i8 %1 align 3\n  return\n",
            "an alignment that is no power of 2",
        ),
    ];
    for (text, what) in broken {
        let function = ir::parse(&format!("function(i32 %0, ptr %1)\n{text}")).unwrap();
        assert_eq!(ir::check(&function).unwrap_err().what, what, "{text}");
    }
}

const DOMINATE: &str = "a use that its definition does not dominate";

#[test]
fn what_dominates_is_kept() {
    let text = "function(i32 %0) -> i32\nb0:\n  jump b1\nb1:\n  %1 = phi i32 [b0 0] [b2 %2]\n  \
                %2 = add i32 %1, 1\n  %3 = icmp ult i32 %2, %0\n  branch %3 b2, b3\nb2:\n  \
                jump b1\nb3:\n  return %2\n";
    assert_eq!(ir::check(&ir::parse(text).unwrap()), Ok(()));
}
