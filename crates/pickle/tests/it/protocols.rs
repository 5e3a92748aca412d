//! What Python 3.11 writes at every protocol is read as what it was.

use std::io::{BufReader, Cursor};

use lowtide_pickle::{AllowList, Call, Limits, NodeId, Pairs, Pickle, Value, read, read_seek};
use serde_json::{Map, Value as Json, json};

const MODELS: [(&str, &str, Call); 9] = [
    ("collections", "OrderedDict", Call::Object),
    ("models", "Point", Call::Object),
    ("models", "Plain", Call::Object),
    ("models", "Words", Call::Object),
    ("models", "Table", Call::Object),
    ("models", "Keywords", Call::Object),
    ("builtins", "complex", Call::Object),
    ("__builtin__", "complex", Call::Object),
    ("fractions", "Fraction", Call::Object),
];

fn allow() -> AllowList {
    let mut allow = AllowList::plain();
    allow.add(&MODELS);
    allow.add(&[("builtins", "tuple", Call::Name), ("__builtin__", "tuple", Call::Name)]);
    allow
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value as the fixtures write it.
fn written(pickle: &Pickle, id: NodeId) -> Json {
    let all = |items: &[NodeId]| items.iter().map(|item| written(pickle, *item)).collect::<Vec<_>>();
    let pairs = |pairs: Pairs<'_>| {
        pairs.iter().map(|(key, value)| json!([written(pickle, key), written(pickle, value)])).collect::<Vec<_>>()
    };
    match pickle.get(id) {
        Value::None => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::BigInt(value) => json!({ "int": value.to_string() }),
        Value::Float(value) => json!({ "float": in_hex(&value.to_be_bytes()) }),
        Value::Str(text) => json!(text),
        Value::Surrogates(bytes) => json!({ "surrogates": in_hex(bytes) }),
        Value::Bytes(bytes) => json!({ "bytes": in_hex(bytes) }),
        Value::ByteArray(bytes) => json!({ "bytearray": in_hex(bytes) }),
        Value::FarBytes { offset, length } => json!({ "far": [offset, length] }),
        Value::List(items) => json!(all(items)),
        Value::Tuple(items) => json!({ "tuple": all(items) }),
        Value::Dict(entries) => json!({ "dict": pairs(entries) }),
        Value::Set(items) => json!({ "set": all(items) }),
        Value::FrozenSet(items) => json!({ "frozenset": all(items) }),
        Value::Global(global) => json!({ "global": format!("{}.{}", global.module, global.name) }),
        Value::Persistent(id) => json!({ "persistent": written(pickle, id) }),
        Value::Folded(number) => json!({ "folded": number }),
        Value::Object(object) => {
            let mut fields = Map::new();
            let module = object.class.module.replace("__builtin__", "builtins");
            fields.insert("object".to_owned(), json!(format!("{module}.{}", object.class.name)));
            fields.insert("args".to_owned(), json!(all(object.args)));
            let parts = [("kwargs", object.kwargs), ("state", object.state)];
            for (name, part) in parts.into_iter().filter_map(|(name, part)| Some((name, part?))) {
                fields.insert(name.to_owned(), written(pickle, part));
            }
            if !object.items.is_empty() {
                fields.insert("items".to_owned(), json!(all(object.items)));
            }
            if !object.pairs.is_empty() {
                fields.insert("pairs".to_owned(), json!(pairs(object.pairs)));
            }
            Json::Object(fields)
        }
    }
}

#[track_caller]
fn check(bytes: &[u8], expect: &Json) {
    let pickle = read(bytes, &allow(), &Limits::default()).expect("a pickle");
    assert_eq!(&written(&pickle, pickle.root()), expect);
    assert_eq!(pickle.length(), bytes.len() as u64);
}

#[test]
fn every_fixture() {
    let cases: Vec<Json> = serde_json::from_str(include_str!("../fixtures/pickles.json")).expect("JSON");
    let mut count = 0;
    for case in &cases {
        let lowest = case["from"].as_u64().unwrap() as usize;
        for (index, pickle) in case["pickles"].as_array().unwrap().iter().enumerate() {
            let bytes = hex(pickle.as_str().unwrap());
            let context = format!("{} at protocol {}", case["name"], lowest + index);
            // Whole, and through buffers that cut opcodes anywhere.
            for size in [usize::MAX, 1, 3, 16] {
                let read = if size == usize::MAX {
                    read(&bytes[..], &allow(), &Limits::default())
                } else {
                    read(BufReader::with_capacity(size, &bytes[..]), &allow(), &Limits::default())
                };
                let read = read.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(written(&read, read.root()), case["expect"], "{context}");
                assert_eq!(read.length(), bytes.len() as u64, "{context}");
            }
            count += 1;
        }
    }
    assert_eq!(count, 232);
}

#[test]
fn text_of_protocol_0() {
    check(b"I00\n.", &json!(false));
    check(b"I01\n.", &json!(true));
    check(b"I-7\n.", &json!(-7));
    check(b"L12345678901234567890L\n.", &json!({ "int": "12345678901234567890" }));
    check(b"L5\n.", &json!(5));
    check(b"F1.5\n.", &json!({ "float": "3ff8000000000000" }));
    check(b"S'it\\'s \\x41\\n'\n.", &json!("it's A\n"));
    check(b"S'\\xff'\n.", &json!({ "bytes": "ff" }));
    check(b"Va\\u20ac\xe9\n.", &json!("a€é"));
    check(b"U\x02hi.", &json!("hi"));
    check(b"T\x02\0\0\0\xff\xfe.", &json!({ "bytes": "fffe" }));
}

#[test]
fn stack_and_memo() {
    check(b"K\x01K\x022\x87.", &json!({ "tuple": [1, 2, 2] }));
    check(b"K\x01K\x020.", &json!(1));
    check(b"K\x01(K\x02K\x031.", &json!(1));
    check(b"K\x01(0.", &json!(1));
    check(b"]p100\n0g100\n.", &json!([]));
    check(b"]r\xff\xff\0\0]j\xff\xff\0\0a.", &json!([[]]));
    check(b"(K\x01K\x02l.", &json!([1, 2]));
    check(b"(K\x01K\x02d.", &json!({ "dict": [[1, 2]] }));
    check(b"P12 ab\n.", &json!({ "persistent": "12 ab" }));
    check(b"U\x01x\x85Q.", &json!({ "persistent": { "tuple": ["x"] } }));
}

#[test]
fn instances_of_old_protocols() {
    let expect = json!({ "object": "models.Plain", "args": [1, 2] });
    check(b"(K\x01K\x02imodels\nPlain\n.", &expect);
    check(b"(cmodels\nPlain\nK\x01K\x02o.", &expect);
}

#[test]
fn instances_of_factories_may_be_called() {
    let mut allow = AllowList::plain();
    allow.add(&[("models", "Maker", Call::Factory)]);
    let pickle = read(&b"cmodels\nMaker\n)\x81K\x01\x85R."[..], &allow, &Limits::default()).expect("a pickle");
    assert_eq!(written(&pickle, pickle.root()), json!({ "object": "models.Maker", "args": [1] }));
}

#[test]
fn a_value_referenced_twice_is_one_node() {
    let pickle = read(&b"]\x94]\x94(h\0h\0h\x01e."[..], &allow(), &keep_cycles()).expect("a pickle");
    let Value::List(items) = pickle.get(pickle.root()) else { panic!("no list") };
    assert_eq!(items[0], items[1]);
    assert_eq!(items[2], pickle.root());
}

#[test]
fn strings_that_come_out_of_the_memo_are_kept_once() {
    let pickle =
        read(&b"](}U\x04sizeq\0K\x01s}h\0K\x02s}h\0K\x03se."[..], &allow(), &Limits::default()).expect("a pickle");
    let Value::List(dicts) = pickle.get(pickle.root()) else { panic!("no list") };
    let keys: Vec<NodeId> = dicts
        .iter()
        .map(|dict| match pickle.get(*dict) {
            Value::Dict(pairs) => pairs.iter().next().expect("an entry").0,
            _ => panic!("no dict"),
        })
        .collect();
    assert_eq!(keys, [keys[0]; 3]);
    assert_eq!(pickle.entry(dicts[1], "size").and_then(|value| pickle.int(value)), Some(2));
    assert_eq!(pickle.entry(dicts[1], "sizes"), None);
}

#[test]
fn the_later_value_of_a_key_counts() {
    let pickle = read(&b"}(U\x01aK\x01U\x01aK\x02u."[..], &allow(), &Limits::default()).expect("a pickle");
    assert_eq!(pickle.entry(pickle.root(), "a").and_then(|value| pickle.int(value)), Some(2));
}

#[test]
fn what_follows_the_pickle_is_left_in_the_input() {
    let mut input = &b"K\x01.K\x02.rest"[..];
    for expect in [1, 2] {
        let pickle = read(&mut input, &allow(), &Limits::default()).expect("a pickle");
        assert_eq!(pickle.int(pickle.root()), Some(expect));
    }
    assert_eq!(input, b"rest");
}

#[test]
fn long_byte_strings_can_stay_where_they_are() {
    let mut bytes = b"](B\0\0\x01\0".to_vec();
    bytes.extend_from_slice(&[7; 65536]);
    bytes.extend_from_slice(b"C\x01ae.");
    let limits = Limits { far_bytes: 1000, ..Limits::default() };
    let expect = json!([{ "far": [7, 65536] }, { "bytes": "61" }]);
    let pickle = read(&bytes[..], &allow(), &limits).expect("a pickle");
    assert_eq!(written(&pickle, pickle.root()), expect);
    let pickle = read_seek(BufReader::with_capacity(64, Cursor::new(&bytes)), &allow(), &limits).expect("a pickle");
    assert_eq!(written(&pickle, pickle.root()), expect);
    assert_eq!(pickle.length(), bytes.len() as u64);
}

#[test]
fn containers_that_grow_by_turns_keep_their_items() {
    // Two lists, each given one item after the other, so that neither can grow in place.
    let mut bytes = b"]q\0]q\x010\x30".to_vec();
    for item in 0..200_u8 {
        bytes.extend_from_slice(&[b'h', item % 2, b'K', item, b'a', b'0']);
    }
    bytes.extend_from_slice(b"h\0h\x01\x86.");
    let pickle = read(&bytes[..], &allow(), &Limits::default()).expect("a pickle");
    let even: Vec<u8> = (0..200).step_by(2).collect();
    let odd: Vec<u8> = (1..200).step_by(2).collect();
    assert_eq!(written(&pickle, pickle.root()), json!({ "tuple": [even, odd] }));
}

fn keep_cycles() -> Limits {
    Limits { cycles: lowtide_pickle::Cycles::Keep, ..Limits::default() }
}
