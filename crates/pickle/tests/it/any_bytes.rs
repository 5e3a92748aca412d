//! No bytes make it panic, and no bytes make it take more than the limits allow.

use std::io::BufReader;

use lowtide_core::Bytes;
use lowtide_pickle::{AllowList, Call, Cycles, Limits, NodeId, Pickle, PickleError, Value, read};
use lowtide_testkit::damages;
use proptest::prelude::*;
use serde_json::Value as Json;

/// Every opcode, so that noise gets further than its first byte.
const OPCODES: &[u8] = b"(.02FILNPRSVabcdgilpst1JKMGQTUXehjoqru)]}\
    \x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8bBC\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98";

pub(crate) fn tight() -> Limits {
    Limits {
        memory: 1 << 20,
        nodes: 2000,
        items: 4000,
        text_bytes: 4000,
        memo: 500,
        depth: 50,
        walk: 20_000,
        cycles: Cycles::Refuse,
        far_bytes: 200,
    }
}

/// What the table may take: tables double as they grow, an object takes up to 80 bytes besides its node.
const MOST: Bytes = Bytes(2 * (2000 * (16 + 12 + 80 + 56) + 4000 * 4 + 3 * 4000) + 4096);

pub(crate) fn allow() -> AllowList {
    let mut allow = AllowList::plain().with_unknown_classes_except(&["os"]);
    allow.add(&[("collections", "OrderedDict", Call::Object), ("a", "b", Call::Object)]);
    allow
}

/// Counts what a walk along all paths meets.
fn walk(pickle: &Pickle, id: NodeId) -> u64 {
    let all = |items: &[NodeId]| items.iter().map(|item| walk(pickle, *item)).sum::<u64>();
    1 + match pickle.get(id) {
        Value::List(items) | Value::Tuple(items) | Value::Set(items) | Value::FrozenSet(items) => all(items),
        Value::Dict(pairs) => pairs.iter().map(|(key, value)| all(&[key, value])).sum(),
        Value::Persistent(id) => walk(pickle, id),
        Value::Object(object) => {
            let pairs: u64 = object.pairs.iter().map(|(key, value)| all(&[key, value])).sum();
            let parts: Vec<NodeId> = object.kwargs.into_iter().chain(object.state).collect();
            all(object.args) + all(object.items) + pairs + all(&parts)
        }
        _ => 0,
    }
}

fn exercise(bytes: &[u8]) {
    let whole = read(bytes, &allow(), &tight());
    let in_pieces = read(BufReader::with_capacity(7, bytes), &allow(), &tight());
    match (whole, in_pieces) {
        (Ok(whole), Ok(in_pieces)) => {
            assert!(whole.memory() <= MOST, "{}", whole.memory());
            assert!(whole.depth() <= 50);
            assert_eq!(walk(&whole, whole.root()), whole.walk());
            assert_eq!(whole.length(), in_pieces.length());
            assert_eq!(whole.node_count(), in_pieces.node_count());
        }
        (whole, in_pieces) => {
            let text = |read: Result<Pickle, PickleError>| read.map(|_| ()).expect_err("both are refused").to_string();
            assert_eq!(text(whole), text(in_pieces));
        }
    }
}

pub(crate) fn pickles() -> Vec<Vec<u8>> {
    let cases: Vec<Json> = serde_json::from_str(include_str!("../fixtures/pickles.json")).expect("JSON");
    let hex = |text: &str| {
        let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
        text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect::<Vec<u8>>()
    };
    let all = cases.iter().flat_map(|case| case["pickles"].as_array().expect("a list").clone());
    all.map(|pickle| hex(pickle.as_str().expect("text"))).filter(|bytes| bytes.len() < 3000).collect()
}

#[test]
fn pickles_cut_at_every_position() {
    for bytes in pickles().iter().filter(|bytes| bytes.len() < 300) {
        for end in 0..bytes.len() {
            exercise(&bytes[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise(&bytes);
    }

    #[test]
    fn programs(
        mut program in prop::collection::vec(
            (prop::sample::select(OPCODES), prop::collection::vec(0_u8..8, 0..3)),
            0..300,
        )
    ) {
        program.push((b'.', Vec::new()));
        let bytes: Vec<u8> = program.into_iter().flat_map(|(opcode, more)| [vec![opcode], more].concat()).collect();
        exercise(&bytes);
    }

    /// Opcodes that need nothing but a stack, so that most programs run to their end.
    #[test]
    fn programs_that_run(program in prop::collection::vec(0_usize..22, 0..400)) {
        const PARTS: [&[u8]; 22] = [
            b"N",
            b"K\x01", b"U\x01a", b"]", b"}", b")", b"(", b"\x8f", b"2", b"\x94", b"h\0", b"h\x01", b"\x85", b"\x86",
            b"t", b"a", b"e", b"s", b"0", b"Q", b"ca\nb\n)\x81", b"b",
        ];
        let mut bytes = b"N\x94]\x94".to_vec();
        // A step that fails is left out, so the rest still runs.
        for part in program {
            let longer = [&bytes[..], PARTS[part]].concat();
            if matches!(read(&longer[..], &allow(), &tight()), Err(PickleError::Ends { .. })) {
                bytes = longer;
            }
        }
        bytes.push(b'.');
        exercise(&bytes);
    }

    #[test]
    fn mutated_pickles(
        which in any::<prop::sample::Index>(),
        changes in damages(7),
    ) {
        let pickles = pickles();
        let mut bytes = which.get(&pickles).clone();
        changes.iter().for_each(|damage| damage.apply(&mut bytes, OPCODES));
        exercise(&bytes);
    }
}
