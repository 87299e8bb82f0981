//! Constants that lie apart from the image: found, filled, and refused.

mod support;

use support::{World, compile};
use uruk_link::{Graph, Laid, LayoutOptions, LinkError, Object, Problem, Referent, Resolved};

const PREFIX: &str = ".data.rel.ro.apart.";

const SOURCE: &str = r#"
#define APART(name) __attribute__((section(".data.rel.ro.apart." name)))
extern const char outside[];
extern int function(int);
APART("text") static const char text[] = "some text";
APART("table") static const void *const table[] = {text + 5, outside + 1, function, table};
APART("near") static const int near[] = {7, 8};
extern void use(const void *);
int first(int i) { use(table); return near[i]; }
"#;

fn laid<'d>(bytes: &'d [u8], apart: Option<&'static str>) -> Result<Laid<'d>, LinkError> {
    let graph = Graph::new(vec![Object::parse("0.o", bytes)?])?;
    graph.layout(&LayoutOptions {
        merge_read_only: true,
        apart,
        ..LayoutOptions::default()
    })
}

fn word(bytes: &[u8], number: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * number..][..8].try_into().expect("eight bytes"))
}

#[test]
fn constants_come_after_what_they_refer_to_and_are_filled_in() {
    let Some(file) = compile("c", SOURCE, &["-O2", "-fPIC"]) else {
        return;
    };
    let laid = laid(&file, Some(PREFIX)).expect("sound");
    let constants = laid.constants();
    let find = |name: &str| {
        let at = |c: &&uruk_link::Constant<'_>| c.name == format!("{PREFIX}{name}");
        constants.iter().find(at).expect(name)
    };
    let (text, table) = (find("text"), find("table"));
    assert_eq!(constants.len(), 3);
    assert_eq!(text.bytes, b"some text\0");
    let number = constants.iter().position(|c| c.name == text.name);
    let to: Vec<Referent<'_>> = table.references.iter().map(|r| r.to).collect();
    assert_eq!(to[0], Referent::Constant(number.expect("above")));
    assert_eq!(to[3], Referent::Itself);
    let names: Vec<&str> = to
        .iter()
        .filter_map(|to| match to {
            Referent::External { name, .. } => Some(*name),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["outside", "function"]);
    let filled = laid.fill(table, 0x7000, &[0x1000, 0x2000, 0x3000, 0]);
    let filled = filled.expect("in reach");
    let words: Vec<u64> = (0..4).map(|i| word(&filled, i)).collect();
    assert_eq!(words, [0x1005, 0x2001, 0x3000, 0x7000]);
    assert!(table.align >= 8, "{}", table.align);
}

/// The code refers to the addresses that the caller chose, and the image contains none of the
/// constants.
#[test]
fn the_image_refers_to_where_they_were_put() {
    let Some(file) = compile("c", SOURCE, &["-O2", "-fPIC"]) else {
        return;
    };
    let inside = laid(&file, None).expect("sound");
    let laid = laid(&file, Some(PREFIX)).expect("sound");
    assert!(inside.constants().is_empty());
    let at = World::default().at;
    let addresses: Vec<u64> = (1..=3).map(|i| at.read_only + 0x100 * i).collect();
    let table = laid.constants().iter();
    let table = table
        .zip(&addresses)
        .find(|(c, _)| c.name.ends_with("table"))
        .map(|(_, &address)| address)
        .expect("above");
    let placed = laid.place_with(at, addresses).expect("aligned");
    let linked = placed.fix_up(|_, _| Some(Resolved::at(at.code + 0x1000)));
    let linked = linked.expect("in reach");
    // `lea table(%rip), %rdi`
    let lea = linked.code.windows(3).position(|w| w == [0x48, 0x8d, 0x3d]);
    let field = lea.expect("it passes the table") + 3;
    let distance = i32::from_le_bytes(linked.code[field..][..4].try_into().expect("four"));
    let end = at.code + field as u64 + 4;
    assert_eq!(end.wrapping_add(distance as u64), table);
    let found = |text: &[u8]| linked.code.windows(text.len()).any(|w| w == text);
    assert!(!found(b"some text"), "the text is in the image");
    assert_eq!(linked.immovable, None);
}

#[test]
fn what_leads_into_the_image_is_refused() {
    for source in [
        r#"static int local(int x) { return x; }
           __attribute__((section(".data.rel.ro.apart.1")))
           int (*const table[])(int) = {local};"#,
        r#"static int data = 4;
           __attribute__((section(".data.rel.ro.apart.1"))) int *const table[] = {&data};"#,
        r#"extern const void *const second[];
           __attribute__((section(".data.rel.ro.apart.1"), visibility("hidden")))
           const void *const first[] = {second};
           __attribute__((section(".data.rel.ro.apart.2"), visibility("hidden")))
           const void *const second[] = {first};"#,
    ] {
        let Some(file) = compile("c", source, &["-O2", "-fPIC"]) else {
            return;
        };
        match laid(&file, Some(PREFIX)) {
            Err(LinkError::Relocation { site, problem }) => {
                assert_eq!(problem, Problem::IntoImage, "{site:?}");
                assert!(site.section.starts_with(PREFIX), "{site:?}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}
