//! Dicts that are taken in while the pickle is read are what they would have been in the whole of it.

use std::fmt::Write as _;

use lowtide_pickle::{Fold, Limits, NodeId, Pairs, PickleError, Value, Values, read, read_folding};
use proptest::prelude::*;

use crate::any_bytes::{allow, pickles, tight};

/// Takes every dict in, as text.
#[derive(Default)]
struct Texts(Vec<String>);

/// Shared values make texts that double with each of them, and a value that holds itself one without end: what is longer stays in the pickle.
const LONGEST: usize = 4000;

impl Fold for &mut Texts {
    fn fold(&mut self, dict: Pairs<'_>, values: Values<'_>) -> Option<u32> {
        let mut text = String::new();
        self.pairs(dict, values, &mut text)?;
        self.0.push(text);
        Some(self.0.len() as u32 - 1)
    }
}

impl Texts {
    fn of(&self, node: NodeId, values: Values<'_>) -> Option<String> {
        let mut text = String::new();
        self.add(node, values, &mut text)?;
        Some(text)
    }

    fn pairs(&self, pairs: Pairs<'_>, values: Values<'_>, text: &mut String) -> Option<()> {
        text.push('{');
        for (key, value) in pairs.iter() {
            self.add(key, values, text)?;
            text.push(':');
            self.add(value, values, text)?;
            text.push(',');
        }
        text.push('}');
        Some(())
    }

    fn add(&self, node: NodeId, values: Values<'_>, text: &mut String) -> Option<()> {
        if text.len() > LONGEST {
            return None;
        }
        let mut all = |name: &str, items: &[NodeId]| {
            text.push_str(name);
            items.iter().try_for_each(|item| self.add(*item, values, text))?;
            text.push(')');
            Some(())
        };
        match values.get(node) {
            Value::List(items) => all("list(", items)?,
            Value::Tuple(items) => all("tuple(", items)?,
            Value::Set(items) => all("set(", items)?,
            Value::FrozenSet(items) => all("frozen(", items)?,
            Value::Dict(pairs) => self.pairs(pairs, values, text)?,
            Value::Folded(number) => text.push_str(&self.0[number as usize]),
            Value::Persistent(id) => all("id(", &[id])?,
            Value::Object(object) => {
                all("object(", object.args)?;
                all("items(", object.items)?;
                all("rest(", &object.kwargs.into_iter().chain(object.state).collect::<Vec<_>>())?;
                self.pairs(object.pairs, values, text)?;
            }
            plain => write!(text, "{plain:?} ").ok()?,
        }
        Some(())
    }
}

/// Whether the same comes of it, where both are read.
fn check(bytes: &[u8], limits: &Limits) -> bool {
    let mut texts = Texts::default();
    let folded = read_folding(bytes, &allow(), limits, &mut texts);
    let Ok(whole) = read(bytes, &allow(), limits) else { return false };
    match folded {
        Ok(folded) => {
            let wanted = Texts::default().of(whole.root(), whole.values());
            let found = texts.of(folded.root(), folded.values());
            // Of those that are too long, the one may be found to be so later.
            assert!(found.is_none() || wanted.is_none() || found == wanted, "{found:?}\n{wanted:?}");
            !texts.0.is_empty()
        }
        Err(PickleError::Malformed { problem, .. }) => {
            assert!(problem.contains("whole already") || problem.contains("cannot be filled"), "{problem}");
            false
        }
        // The values that all others share are made in advance.
        Err(PickleError::TooMuch { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_fixture() {
    let taken = pickles().iter().filter(|bytes| check(bytes, &Limits::default())).count();
    assert!(taken >= 30, "{taken}");
}

/// A list in the memo, to which nothing is added twice, and a value that is made behind it.
#[test]
fn an_empty_list_does_not_give_way_to_itself() {
    let bytes = b"}(]\x94(e(e)\x85t\x86.";
    let mut texts = Texts::default();
    let folded = read_folding(&bytes[..], &allow(), &tight(), &mut texts).unwrap();
    assert_eq!(texts.of(folded.root(), folded.values()).unwrap(), "tuple({}tuple(list()tuple(tuple())))");
    check(bytes, &tight());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Programs that no pickler writes: values are put aside, taken out, copied and thrown away at any time.
    #[test]
    fn programs(program in prop::collection::vec(0_usize..26, 0..300)) {
        const PARTS: [&[u8]; 26] = [
            b"N", b"K\x01", b"M\x07\x07", b"U\x01a", b"]", b"}", b"]\x94", b"}\x94", b")", b"(", b"(", b"2", b"\x94", b"h\0", b"h\x01", b"h\x02",
            b"q\x01", b"\x85", b"\x86", b"t", b"a", b"e", b"s", b"u", b"u", b"0",
        ];
        let mut bytes = b"N\x94]\x94}\x94".to_vec();
        // A step that fails is left out, so the rest still runs.
        for part in program {
            let longer = [&bytes[..], PARTS[part]].concat();
            if matches!(read(&longer[..], &allow(), &tight()), Err(PickleError::Ends { .. })) {
                bytes = longer;
            }
        }
        bytes.push(b'.');
        check(&bytes, &tight());
    }
}

/// A list of dicts as Python writes it, each with a few integers and a list of shared values.
fn events(count: u32) -> Vec<u8> {
    let mut bytes = b"\x80\x04]\x94(\x8c\x01a\x94\x8c\x01b\x94\x8c\x01c\x94e]\x94(".to_vec();
    for event in 0..count {
        bytes.extend(b"}\x94(h\x01J");
        bytes.extend((event + 70_000).to_le_bytes());
        bytes.extend(b"h\x02J");
        bytes.extend((event * 3 + 70_000).to_le_bytes());
        bytes.extend(b"h\x03]\x94");
        bytes.extend([&b""[..], b"(h\x01h\x02e", b"(h\x03h\x02h\x01h\x02e"][event as usize % 3]);
        bytes.extend(b"u");
    }
    bytes.extend(b"e\x86.");
    bytes
}

#[test]
fn what_was_taken_in_is_no_longer_held() {
    struct Count(u32);
    impl Fold for &mut Count {
        fn fold(&mut self, _dict: Pairs<'_>, _values: Values<'_>) -> Option<u32> {
            self.0 += 1;
            Some(self.0 - 1)
        }
    }
    assert!(check(&events(50), &Limits::default()));
    let count = 100_000;
    let bytes = events(count);
    let mut taken = Count(0);
    let folded = read_folding(&bytes[..], &allow(), &Limits::default(), &mut taken).unwrap();
    assert_eq!(taken.0, count);
    let whole = read(&bytes[..], &allow(), &Limits::default()).unwrap();
    let each = |memory: u64| memory / u64::from(count);
    // A node, and its place in the list.
    assert!(each(folded.memory().0) <= 24, "{}", folded.memory());
    assert!(each(whole.memory().0) > 100, "{}", whole.memory());
}
