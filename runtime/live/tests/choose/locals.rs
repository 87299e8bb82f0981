//! Local functions: which have native code that is called by their types.

use uruk::live::rebound::{FunctionInfo, PlainResult, PlainType};
use uruk_live::choose::Fate;
use uruk_live::program::symbols::PlaceKind;

use super::fate;
use super::program::{Program, caller_and_inner, chosen, function};

#[test]
fn local_functions_that_are_never_inlined_and_take_all_arguments_have_native_code() {
    let never = FunctionInfo {
        local: true,
        never_inlined: true,
        plain: Some(PlainType::default()),
        ..function("apart")
    };
    let program = |taking: bool| Program {
        taking: taking.then_some(96).into_iter().collect(),
        unmentioned: [96].into(),
        ..Program::default().with("apart", PlaceKind::Function, 96)
    };
    let found = |info: &FunctionInfo, taking| {
        let outcome = chosen(vec![info.clone()], Vec::new(), &program(taking));
        let chosen = &outcome.functions[0];
        (matches!(chosen.fate, Fate::Adopted { .. }), chosen.narrow)
    };
    assert_eq!(found(&never, true), (true, true));
    assert!(!found(&never, false).0);
    let pointer = FunctionInfo {
        plain: None,
        ..never.clone()
    };
    assert!(!found(&pointer, true).0);
    let inlined = FunctionInfo {
        never_inlined: false,
        ..never.clone()
    };
    assert!(!found(&inlined, true).0);
    // Natively the result may be missing, unless a caller uses it.
    let with_result = FunctionInfo {
        plain: Some(PlainType {
            result: PlainResult::Word,
            ..PlainType::default()
        }),
        ..never
    };
    assert!(!found(&with_result, true).0);
    let giving = Program {
        giving: [96].into(),
        ..program(true)
    };
    let outcome = chosen(vec![with_result], Vec::new(), &giving);
    assert!(matches!(outcome.functions[0].fate, Fate::Adopted { .. }));
}

#[test]
fn local_functions_that_the_compiler_recorded_have_native_code() {
    let [caller, inner] = caller_and_inner();
    let program = || Program {
        recorded: ["inner"].into(),
        unmentioned: [96].into(),
        ..Program::default()
            .with("caller", PlaceKind::Function, 64)
            .with("inner", PlaceKind::Function, 96)
    };
    let all = |program: &Program| {
        let functions = vec![caller.clone(), inner.clone()];
        chosen(functions, Vec::new(), program)
    };
    let outcome = all(&program());
    let Fate::Adopted { entry, .. } = fate(&outcome, "inner.of.3") else {
        panic!("it has a native version");
    };
    assert_eq!(*entry, 96);
    // Callers may have inlined it; it counts its samples itself, and may rely on its arguments.
    let caller = &outcome.functions[0];
    assert!(caller.holds.iter().eq(["inner.of.3"]));
    assert!(matches!(&caller.fate, Fate::Adopted { beside, .. } if beside.is_empty()));
    assert!(outcome.functions[1].narrow);
    // A record is no room, and no symbol.
    let without_room = Program {
        without_room: [96].into(),
        ..program()
    };
    let removed = Program {
        places: program().places.into_iter().take(0).collect(),
        ..program()
    };
    let data = program().with("inner", PlaceKind::Data, 96);
    let other = Program {
        recorded: ["another"].into(),
        ..program()
    };
    for program in [without_room, removed, data, other] {
        assert_eq!(fate(&all(&program), "inner.of.3"), &Fate::WithCallers);
    }
}
