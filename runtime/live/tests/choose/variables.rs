//! Variables that the optimizer removed or split.

use uruk::live::rebound::{Part, Survey, Uses, VariableAccess, VariableChoice, VariableInfo};
use uruk_live::choose::{Fate, Outcome, Reason, choose};
use uruk_live::program::symbols::PlaceKind;

use crate::program::{Program, chosen, function, variable};
use crate::{FunctionInfo, fate};

fn used(uses: Uses) -> VariableInfo {
    VariableInfo {
        size: 16,
        uses,
        ..variable("state")
    }
}

fn access(offset: u64, size: u64) -> VariableAccess {
    VariableAccess {
        offset,
        size,
        flag: false,
    }
}

/// Four bytes and eight, as the fields of a structure are.
fn fields() -> Vec<VariableAccess> {
    vec![access(0, 4), access(8, 8)]
}

/// A program that has these two.
fn with_parts() -> Program {
    Program::default()
        .with_size("state.0", PlaceKind::Data, 32, 4)
        .with_size("state.1", PlaceKind::Data, 40, 8)
}

/// The only variable's choice; `None`, if it is refused.
fn choice_of(outcome: &Outcome) -> Option<VariableChoice> {
    let refused = matches!(fate(outcome, "user"), Fate::Refused(_));
    (!refused).then(|| outcome.choices.variables[0].clone())
}

fn user(variables: Vec<u32>) -> FunctionInfo {
    FunctionInfo {
        variables,
        ..function("user")
    }
}

fn choice(info: VariableInfo, program: &Program) -> Option<VariableChoice> {
    choice_of(&chosen(vec![user(vec![0])], vec![info], program))
}

fn parts(accesses: Vec<VariableAccess>, program: &Program) -> Option<VariableChoice> {
    choice(used(Uses::Accessed(accesses)), program)
}

#[test]
fn what_nobody_writes_is_a_constant_and_what_nobody_reads_is_the_modules_own() {
    let program = Program::default();
    let constant = Some(VariableChoice::Constant);
    assert_eq!(choice(used(Uses::Read), &program), constant);
    let own = Some(VariableChoice::Own);
    assert_eq!(choice(used(Uses::Written), &program), own);
    assert_eq!(choice(used(Uses::Any), &program), None);
    // An exchanged file may do more with it.
    let outcome = chosen(Vec::new(), vec![used(Uses::Read)], &program);
    assert_eq!(outcome.missing, ["state"]);
}

#[test]
fn only_what_is_local_and_has_no_symbol_is_told_by_its_uses() {
    let other_size = Program::default().with("state", PlaceKind::Data, 8);
    let shared = VariableInfo {
        local: false,
        ..used(Uses::Read)
    };
    let of_thread = VariableInfo {
        thread_local: true,
        ..used(Uses::Read)
    };
    assert_eq!(choice(used(Uses::Read), &other_size), None);
    assert_eq!(choice(used(Uses::Written), &other_size), None);
    assert_eq!(choice(shared, &Program::default()), None);
    assert_eq!(choice(of_thread, &Program::default()), None);
}

#[test]
fn a_split_variable_is_its_parts() {
    let part = |number: u64, offset, size, align| Part {
        offset,
        size,
        align,
        name: format!("state.{number}.of.3"),
    };
    let expected = vec![part(0, 0, 4, 32), part(1, 8, 8, 8)];
    let info = used(Uses::Accessed(fields()));
    let outcome = chosen(vec![user(vec![0])], vec![info], &with_parts());
    assert_eq!(choice_of(&outcome), Some(VariableChoice::Parts(expected)));
    let address = |name: &str, at| (name.to_owned(), at);
    let addresses = [address("state.0.of.3", 32), address("state.1.of.3", 40)];
    assert_eq!(outcome.addresses, addresses);
    assert_eq!(outcome.missing, ["state"]);
}

#[test]
fn one_part_may_be_all_there_is() {
    let program = Program::default().with("state.0", PlaceKind::Data, 32);
    assert!(parts(vec![access(4, 4)], &program).is_some());
}

#[test]
fn parts_must_be_as_many_as_the_accesses() {
    let more = with_parts().with("state.2", PlaceKind::Data, 48);
    assert_eq!(parts(fields(), &more), None);
    let fewer = Program::default().with("state.0", PlaceKind::Data, 32);
    assert_eq!(parts(fields(), &fewer), None);
}

#[test]
fn parts_must_have_the_sizes_of_the_accesses() {
    let wider = with_parts().with_size("state.1", PlaceKind::Data, 40, 16);
    assert_eq!(parts(fields(), &wider), None);
    // Made a flag.
    let narrower = with_parts().with_size("state.0", PlaceKind::Data, 32, 1);
    assert_eq!(parts(fields(), &narrower), None);
    let code = with_parts().with_size("state.1", PlaceKind::Function, 40, 8);
    assert_eq!(parts(fields(), &code), None);
}

#[test]
fn accesses_must_not_overlap_or_leave_the_variable() {
    let program = with_parts();
    assert_eq!(parts(vec![access(0, 4), access(2, 8)], &program), None);
    assert_eq!(parts(vec![access(0, 4), access(0, 8)], &program), None);
    assert_eq!(parts(vec![access(0, 4), access(12, 8)], &program), None);
    assert!(parts(vec![access(0, 4), access(4, 8)], &program).is_some());
}

#[test]
fn a_part_that_may_be_a_flag_is_not_trusted() {
    let program = Program::default().with_size("state.0", PlaceKind::Data, 32, 1);
    let byte = |flag| VariableAccess {
        flag,
        ..access(0, 1)
    };
    assert!(parts(vec![byte(false)], &program).is_some());
    assert_eq!(parts(vec![byte(true)], &program), None);
}

#[test]
fn names_of_parts_must_be_nobody_elses() {
    let split = used(Uses::Accessed(fields()));
    let other = VariableInfo {
        size: 4,
        ..variable("state.0")
    };
    let outcome = chosen(
        vec![user(vec![0])],
        vec![split.clone(), other],
        &with_parts(),
    );
    assert_eq!(choice_of(&outcome), None);
    let namesake = function("state.1");
    let functions = vec![user(vec![0]), namesake];
    let outcome = chosen(functions, vec![split.clone()], &with_parts());
    assert_eq!(choice_of(&outcome), None);
    let survey = Survey {
        functions: vec![user(vec![0])],
        variables: vec![split],
        aliases: vec!["state.1".to_owned()],
    };
    assert_eq!(choice_of(&choose(&survey, &with_parts())), None);
}

#[test]
fn whose_value_leads_to_a_refused_variable_is_refused() {
    let leads = |number, uses| VariableInfo {
        variables: vec![number],
        ..used(uses)
    };
    let gone = variable("gone");
    let reason = Fate::Refused(Reason::Variable("gone".to_owned()));
    // By two steps; the refused one is the last.
    let variables = vec![leads(1, Uses::Read), leads(2, Uses::Read), gone.clone()];
    let outcome = chosen(vec![user(vec![0])], variables, &Program::default());
    assert_eq!(fate(&outcome, "user"), &reason);
    // The program's own constant: the optimizer looks at its value, too.
    let constant = VariableInfo {
        constant: true,
        variables: vec![1],
        ..variable("table")
    };
    let program = Program::default().with("table", PlaceKind::Data, 8);
    let outcome = chosen(vec![user(vec![0])], vec![constant.clone(), gone], &program);
    assert_eq!(fate(&outcome, "user"), &reason);
    let there = program.with("there", PlaceKind::Data, 16);
    let outcome = chosen(
        vec![user(vec![0])],
        vec![constant, variable("there")],
        &there,
    );
    assert_ne!(fate(&outcome, "user"), &reason);
}

#[test]
fn what_a_table_of_the_modules_own_leads_to_counts_as_called() {
    let table = VariableInfo {
        functions: vec![1],
        ..used(Uses::Read)
    };
    let inner = FunctionInfo {
        local: true,
        ..function("inner")
    };
    let refused = FunctionInfo {
        coroutine: true,
        ..inner.clone()
    };
    let program = Program::default().with("user", PlaceKind::Function, 64);
    let outcome = chosen(vec![user(vec![0]), inner], vec![table.clone()], &program);
    // Its body may be in the native code of the user.
    assert!(outcome.functions[0].holds.iter().eq(["inner.of.3"]));
    let outcome = chosen(vec![user(vec![0]), refused], vec![table], &program);
    let reason = Reason::Calls("inner".to_owned());
    assert_eq!(fate(&outcome, "user"), &Fate::Refused(reason));
}
