//! The meaning of a module's names, given the program's symbols.

mod locals;
mod program;
mod variables;

use uruk::InlinedCopy;
use uruk::live::rebound::{FunctionInfo, Keep, PlainType, VariableChoice, VariableInfo};
use uruk_live::choose::{Fate, Outcome, Reason};
use uruk_live::names::NameList;
use uruk_live::program::symbols::PlaceKind;

use program::{Program, caller_and_inner, chosen, function, variable};

fn fate<'o>(outcome: &'o Outcome, name: &str) -> &'o Fate {
    let found = outcome.functions.iter().find(|chosen| chosen.name == name);
    &found.expect("it has a body").fate
}

#[test]
fn who_uses_a_removed_variable_stays_native() {
    let user = FunctionInfo {
        variables: vec![0],
        ..function("user")
    };
    let program = Program::default().with("user", PlaceKind::Function, 64);
    let outcome = chosen(vec![user], vec![variable("gone")], &program);
    let reason = Reason::Variable("gone".to_owned());
    assert_eq!(fate(&outcome, "user"), &Fate::Refused(reason));
    assert_eq!(outcome.missing, ["gone"]);
    assert_eq!(outcome.choices.functions[0].keep, Keep::Nothing);
}

#[test]
fn a_variable_of_another_size_is_another_one() {
    let program = Program::default().with("flag", PlaceKind::Data, 8);
    let own = |size| VariableInfo {
        size,
        ..variable("flag")
    };
    let same = chosen(Vec::new(), vec![own(4)], &program);
    let name = "flag.of.3".to_owned();
    assert_eq!(
        same.choices.variables,
        [VariableChoice::Named(name.clone())]
    );
    assert_eq!(same.addresses, [(name, 8)]);
    let other = chosen(Vec::new(), vec![own(16)], &program);
    assert_eq!(other.missing, ["flag"]);
}

#[test]
fn a_byte_that_may_be_a_flag_is_not_trusted() {
    let byte = VariableInfo {
        size: 1,
        flag: true,
        ..variable("mode")
    };
    let mut program = Program::default().with("mode", PlaceKind::Data, 8);
    if let Some(place) = program.places.get_mut("mode") {
        place.size = 1;
    }
    assert_eq!(chosen(Vec::new(), vec![byte], &program).missing, ["mode"]);
}

#[test]
fn local_functions_that_nobody_points_to_go_with_their_callers() {
    let [caller, inner] = caller_and_inner();
    let program = Program::default()
        .with("caller", PlaceKind::Function, 64)
        .with("inner", PlaceKind::Function, 96);
    let outcome = chosen(vec![caller.clone(), inner.clone()], Vec::new(), &program);
    assert_eq!(fate(&outcome, "inner.of.3"), &Fate::WithCallers);
    let Fate::Adopted { entry, beside, .. } = fate(&outcome, "caller") else {
        panic!("it has a native version");
    };
    // Samples in the inner one ask for the outer one.
    assert_eq!(
        (*entry, beside.as_slice()),
        (
            64,
            std::slice::from_ref(&InlinedCopy {
                name: "inner.of.3".to_owned(),
                code: 96..100
            })
        )
    );
    assert!(outcome.functions[0].holds.iter().eq(["inner.of.3"]));
    // Whose address is taken keeps its type, if it is taken natively.
    let pointed = FunctionInfo {
        address_taken: true,
        ..inner
    };
    let both = || vec![caller.clone(), pointed.clone()];
    let outcome = chosen(both(), Vec::new(), &program);
    assert!(matches!(fate(&outcome, "inner.of.3"), Fate::Adopted { .. }));
    let Some(place) = program.places.get("inner") else {
        panic!("it has a place");
    };
    let program = Program {
        unmentioned: [place.address].into(),
        ..program
    };
    let outcome = chosen(both(), Vec::new(), &program);
    assert_eq!(fate(&outcome, "inner.of.3"), &Fate::WithCallers);
    assert_eq!(outcome.choices.functions[1].address, None);
    // Or if it has numbers only, and its code takes all of them.
    let plain = FunctionInfo {
        plain: Some(PlainType::default()),
        ..pointed.clone()
    };
    let numbers = || vec![caller.clone(), plain.clone()];
    let outcome = chosen(numbers(), Vec::new(), &program);
    assert_eq!(fate(&outcome, "inner.of.3"), &Fate::WithCallers);
    let program = Program {
        taking: program.unmentioned.clone(),
        ..program
    };
    let outcome = chosen(numbers(), Vec::new(), &program);
    assert!(matches!(fate(&outcome, "inner.of.3"), Fate::Adopted { .. }));
    let outcome = chosen(both(), Vec::new(), &program);
    assert_eq!(fate(&outcome, "inner.of.3"), &Fate::WithCallers);
    // Without a known object file the answer is unknown.
    let program = Program {
        without_object: true,
        ..program
    };
    let outcome = chosen(both(), Vec::new(), &program);
    let reason = Reason::Variable("inner".to_owned());
    assert_eq!(fate(&outcome, "caller"), &Fate::Refused(reason));
}

#[test]
fn who_keeps_the_address_of_a_text_that_is_there_twice_stays() {
    let text = VariableInfo {
        private: true,
        constant: true,
        unnamed: true,
        bytes: Some(b"twice\0".to_vec()),
        compared: true,
        ..variable(".str")
    };
    let table = VariableInfo {
        constant: true,
        variables: vec![0],
        ..variable("table")
    };
    let keeps = FunctionInfo {
        variables: vec![0],
        kept: vec![0],
        ..function("keeps")
    };
    let prints = FunctionInfo {
        variables: vec![0, 1],
        ..function("prints")
    };
    let program = || {
        Program::default()
            .with("keeps", PlaceKind::Function, 64)
            .with("prints", PlaceKind::Function, 96)
            .with("table", PlaceKind::Data, 200)
    };
    let chosen = |mentioning: &[(u64, &[u64])]| {
        let mentioning = mentioning.iter().map(|(at, it)| (*at, it.to_vec()));
        let program = Program {
            mentioning: mentioning.collect(),
            ..program()
        };
        chosen(
            vec![keeps.clone(), prints.clone()],
            vec![text.clone(), table.clone()],
            &program,
        )
    };
    // Native code of both mentions one place, or nothing tells which is meant.
    let outcome = chosen(&[(64, &[7, 9]), (96, &[9, 11])]);
    assert!(matches!(fate(&outcome, "keeps"), Fate::Adopted { .. }));
    assert!(outcome.addresses.contains(&(".str.of.3".to_owned(), 9)));
    for several in [&[(64, &[7, 9][..])][..], &[(64, &[7]), (96, &[9])]] {
        let outcome = chosen(several);
        assert!(matches!(fate(&outcome, "keeps"), Fate::Refused(_)));
    }
    let outcome = chosen(&[]);
    let reason = Reason::Text("twice".to_owned());
    assert_eq!(fate(&outcome, "keeps"), &Fate::Refused(reason));
    assert!(matches!(fate(&outcome, "prints"), Fate::Adopted { .. }));
    let found = &outcome.choices.variables;
    assert_eq!(found[0], VariableChoice::Own);
    assert_eq!(found[1], VariableChoice::Hidden("table.of.3".to_owned()));
}

#[test]
fn labels_that_are_data_need_native_code_of_their_own() {
    let labels = |local| FunctionInfo {
        labels: true,
        local,
        ..function("run")
    };
    let program = Program::default().with("run", PlaceKind::Function, 64);
    let outcome = chosen(vec![labels(false)], Vec::new(), &program);
    assert!(matches!(fate(&outcome, "run"), Fate::Adopted { .. }));
    let outcome = chosen(vec![labels(true)], Vec::new(), &program);
    assert_eq!(fate(&outcome, "run.of.3"), &Fate::Refused(Reason::Labels));
}

#[test]
fn who_calls_what_cannot_be_called_is_refused_with_it() {
    let caller = FunctionInfo {
        functions: vec![1],
        ..function("caller")
    };
    let inner = FunctionInfo {
        local: true,
        coroutine: true,
        ..function("inner")
    };
    let program = Program::default().with("caller", PlaceKind::Function, 64);
    let outcome = chosen(vec![caller, inner], Vec::new(), &program);
    let reason = Reason::Calls("inner".to_owned());
    assert_eq!(fate(&outcome, "caller"), &Fate::Refused(reason));
}

#[test]
fn who_calls_what_is_nowhere_is_refused() {
    let caller = FunctionInfo {
        functions: vec![1],
        ..function("caller")
    };
    let copy = |always_inlined| FunctionInfo {
        defined: false,
        copy: true,
        always_inlined,
        ..function("allocate")
    };
    let program = Program::default().with("caller", PlaceKind::Function, 64);
    let refused = |always| {
        let outcome = chosen(vec![caller.clone(), copy(always)], Vec::new(), &program);
        assert_eq!(outcome.choices.functions[1].keep, Keep::Copy);
        fate(&outcome, "caller").clone()
    };
    let reason = Reason::Missing("allocate".to_owned());
    assert_eq!(refused(false), Fate::Refused(reason));
    assert!(matches!(refused(true), Fate::Adopted { .. }));
}

#[test]
fn of_weak_bodies_only_equal_ones_are_looked_at() {
    let weak = |same| FunctionInfo {
        weak: true,
        same,
        ..function("f")
    };
    let mut program = Program::default().with("f", PlaceKind::Function, 64);
    let keep = |info, program: &Program| {
        let outcome = chosen(vec![info], Vec::new(), program);
        outcome.choices.functions[0].keep
    };
    // The linker took one that is not weak.
    assert_eq!(keep(weak(true), &program), Keep::Copy);
    assert_eq!(keep(weak(false), &program), Keep::Nothing);
    if let Some(place) = program.places.get_mut("f") {
        place.weak = true;
    }
    // The symbols do not tell which of several weak definitions the linker took.
    assert_eq!(keep(weak(false), &program), Keep::Nothing);
    assert_eq!(keep(weak(true), &program), Keep::Body);
    program.taken.insert("f");
    assert_eq!(keep(weak(true), &program), Keep::Copy);
}

#[test]
fn strings_and_thread_locals_are_where_the_program_has_them() {
    let string = VariableInfo {
        private: true,
        constant: true,
        unnamed: true,
        bytes: Some(b"known\0".to_vec()),
        ..variable(".str")
    };
    let other = VariableInfo {
        bytes: Some(b"other\0".to_vec()),
        ..string.clone()
    };
    let thread = VariableInfo {
        thread_local: true,
        ..variable("t")
    };
    let program = Program::default().with("t", PlaceKind::ThreadLocal, 60);
    let outcome = chosen(Vec::new(), vec![string, other, thread], &program);
    let found = &outcome.choices.variables;
    assert!(matches!(found[0], VariableChoice::Named(_)));
    assert_eq!(found[1], VariableChoice::Own);
    assert_eq!(found[2], VariableChoice::ThreadLocal(-40));
}

/// A caller of `count` local functions, and these.
fn caller_of(count: u32) -> Vec<FunctionInfo> {
    let caller = FunctionInfo {
        functions: (1..=count).collect(),
        ..function("caller")
    };
    let inner = |number| FunctionInfo {
        local: true,
        ..function(&format!("inner{number}"))
    };
    std::iter::once(caller)
        .chain((1..=count).map(inner))
        .collect()
}

#[test]
fn what_needs_many_functions_first_stays_native() {
    let program = Program::default().with("caller", PlaceKind::Function, 64);
    let few = chosen(caller_of(128), Vec::new(), &program);
    assert!(matches!(fate(&few, "caller"), Fate::Adopted { .. }));
    let many = chosen(caller_of(129), Vec::new(), &program);
    let caller = many.functions.iter().find(|it| it.name == "caller");
    let rests = caller.and_then(|it| it.rests.clone());
    assert_eq!(rests, Some(Reason::Needs(129)));
    assert!(matches!(fate(&many, "caller"), Fate::Adopted { .. }));
    assert_eq!(fate(&many, "inner7.of.3"), &Fate::WithCallers);
}

#[test]
fn samples_are_those_of_all_nearest_callers() {
    let calls = |name, functions: &[u32]| FunctionInfo {
        functions: functions.to_vec(),
        ..function(name)
    };
    let inner = FunctionInfo {
        local: true,
        ..function("inner")
    };
    let between = FunctionInfo {
        local: true,
        ..calls("between", &[0])
    };
    let all = vec![
        inner,
        calls("one", &[0]),
        calls("two", &[0]),
        between,
        calls("far", &[3]),
    ];
    let program = [("inner", 96), ("one", 192), ("two", 256), ("far", 320)]
        .into_iter()
        .fold(Program::default(), |program, (name, at)| {
            program.with(name, PlaceKind::Function, at)
        });
    let outcome = chosen(all, Vec::new(), &program);
    let beside = ["one", "two", "far"].map(|name| match fate(&outcome, name) {
        Fate::Adopted { beside, .. } => beside.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(beside, [1, 1, 0]);
}

#[test]
fn functions_that_are_never_inlined_are_relied_on_by_callers_and_not_held() {
    let program = || {
        Program::default()
            .with("main", PlaceKind::Function, 64)
            .with("apart", PlaceKind::Function, 96)
            .with("inner", PlaceKind::Function, 128)
    };
    let never = FunctionInfo {
        never_inlined: true,
        functions: vec![2],
        ..function("apart")
    };
    let main = FunctionInfo {
        functions: vec![1],
        ..function("main")
    };
    let held = |program: &Program| {
        let functions = vec![main.clone(), never.clone(), function("inner")];
        let outcome = chosen(functions, Vec::new(), program);
        let main = outcome.functions[0].clone();
        assert!(outcome.functions[1].holds.iter().eq(["inner"]));
        let listed = |names: NameList| names.iter().map(str::to_owned).collect::<Vec<_>>();
        (listed(main.holds), listed(main.relies))
    };
    let both = || vec!["apart".to_owned(), "inner".to_owned()];
    assert_eq!(held(&program()), (Vec::new(), both()));
    // The optimizer made a copy for some arguments; the symbols do not tell; it is called as it is.
    let copied = Program {
        copied: ["apart"].into(),
        ..program()
    };
    let unknown = Program {
        without_object: true,
        ..program()
    };
    let stays = Program {
        without_room: [96].into(),
        ..program()
    };
    for program in [copied, unknown, stays] {
        assert_eq!(held(&program), (both(), Vec::new()));
    }
}

#[test]
fn functions_with_the_same_code_are_told() {
    let wrapper = FunctionInfo {
        functions: vec![0],
        ..function("wrapper")
    };
    let functions = vec![
        function("kept"),
        function("same"),
        function("thunk"),
        wrapper,
    ];
    let place = |program: Program, name, at| program.with(name, PlaceKind::Function, at);
    let mut program = place(Program::default(), "kept", 16);
    program = place(program, "same", 16);
    program = place(program, "thunk", 32);
    program = place(program, "wrapper", 48);
    // One of them does what its body says: it calls the other one.
    program.jumps = [(32, 16), (48, 16)].into();
    let outcome = chosen(functions, Vec::new(), &program);
    let merged = outcome.functions.iter().map(|it| it.merged.as_deref());
    let merged: Vec<_> = merged.collect();
    assert_eq!(merged, [Some("thunk"), Some("kept"), Some("kept"), None]);
}
