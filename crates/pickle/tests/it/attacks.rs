//! Pickles that would harm whoever ran or walked them: each is refused, by name and place.

use std::io::{self, BufReader, Read};

use lowtide_pickle::{AllowList, Call, Cycles, Limits, Value, read};

fn refusal(bytes: &[u8], allow: &AllowList, limits: &Limits) -> String {
    match read(bytes, allow, limits) {
        Ok(pickle) => panic!("read as {:?}", pickle.get(pickle.root())),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(bytes: &[u8], expect: &str) {
    assert_eq!(refusal(bytes, &AllowList::plain(), &Limits::default()), expect);
}

#[track_caller]
fn check_limits(bytes: &[u8], limits: &Limits, expect: &str) {
    assert_eq!(refusal(bytes, &AllowList::plain(), limits), expect);
}

/// Any class at all may be made, none may be called.
fn lenient() -> AllowList {
    let mut allow = AllowList::plain().with_unknown_classes_except(&["builtins", "os", "posix"]);
    allow.add(&[("models", "Plain", Call::Object), ("torch", "float32", Call::Name)]);
    allow
}

#[test]
fn functions_that_run_commands() {
    check(
        b"cos\nsystem\n(S'touch fooled'\ntR.",
        "byte 0: GLOBAL names `os.system`, which is not on the list of allowed names",
    );
    check(
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        "byte 18: STACK_GLOBAL names `builtins.eval`, which is not on the list of allowed names",
    );
    check(
        b"(S'touch fooled'\nios\nsystem\n.",
        "byte 17: INST names `os.system`, which is not on the list of allowed names",
    );
    check(
        b"(c__builtin__\nexec\nS'1'\no.",
        "byte 1: GLOBAL names `__builtin__.exec`, which is not on the list of allowed names",
    );
    check(
        b"\x80\x02cbuiltins\nset.__class__\n.",
        "byte 2: GLOBAL names `builtins.set.__class__`, which is not on the list of allowed names",
    );
}

#[test]
fn tricks_with_copyreg() {
    check(
        b"ccopyreg\nadd_extension\n.",
        "byte 0: GLOBAL names `copyreg.add_extension`, which is not on the list of allowed names",
    );
    check(
        b"ccopyreg\n__newobj__\n.",
        "byte 0: GLOBAL names `copyreg.__newobj__`, which is not on the list of allowed names",
    );
    check(
        b"ccopyreg\n_reconstructor\n(cbuiltins\nset\ncbuiltins\nobject\nNtR.",
        "byte 58: REDUCE calls `builtins.set`, which is not on the list of what may be called",
    );
    check(b"ccopyreg\n_reconstructor\n(K\x01NNtR.", "byte 30: REDUCE calls a value that is no class or function");
    check(b"ccopyreg\n_reconstructor\n)R.", "byte 25: REDUCE reconstructs from other than three arguments");
}

#[test]
fn unknown_classes_may_be_made_but_never_called() {
    let limits = Limits::default();
    let check = |bytes: &[u8], expect: &str| assert_eq!(refusal(bytes, &lenient(), &limits), expect);
    check(
        b"cshutil\nrmtree\n(S'/'\ntR.",
        "byte 22: REDUCE calls `shutil.rmtree`, which is not on the list of what may be called",
    );
    check(
        b"(S'/'\nishutil\nrmtree\n.",
        "byte 6: INST calls `shutil.rmtree`, which is not on the list of what may be called",
    );
    check(
        b"(cshutil\nrmtree\nS'/'\no.",
        "byte 21: OBJ calls `shutil.rmtree`, which is not on the list of what may be called",
    );
    check(b"cos\nsystem\n.", "byte 0: GLOBAL names `os.system`, which is not on the list of allowed names");
    check(b"cos.path\njoin\n.", "byte 0: GLOBAL names `os.path.join`, which is not on the list of allowed names");
    check(
        b"ctorch\nfloat32\n)\x81.",
        "byte 16: NEWOBJ calls `torch.float32`, which is not on the list of what may be called",
    );
    let made = read(&b"cshop\nPoint\nK\x01K\x02\x86\x81."[..], &lenient(), &limits).expect("a named tuple");
    assert!(matches!(made.get(made.root()), Value::Object(object) if object.class.name == "Point"));
}

#[test]
fn names_in_messages_are_short_and_on_one_line() {
    let mut bytes = b"\x80\x04X\xc8\0\0\0".to_vec();
    bytes.extend_from_slice(&[b'm'; 200]);
    bytes.extend_from_slice(b"U\x06a\nb\x1b[0\x93.");
    let expect = format!(
        "byte 215: STACK_GLOBAL names `{}....a\\nb\\u{{1b}}[0`, which is not on the list of allowed names",
        "m".repeat(120)
    );
    check(&bytes, &expect);
}

#[test]
fn calls_of_what_is_no_function() {
    check(b"K\x01)R.", "byte 3: REDUCE calls a value that is no class or function");
    assert_eq!(
        refusal(b"cmodels\nPlain\n)\x81)R.", &lenient(), &Limits::default()),
        "byte 17: REDUCE calls an instance of a class, and not the class"
    );
    check(b"cbuiltins\nset\nK\x01R.", "byte 16: REDUCE wants a tuple of arguments");
    check(b"cbuiltins\nset\n)K\x01\x92.", "byte 17: NEWOBJ_EX wants a dict of keyword arguments");
    check(b"cbuiltins\nset\nK\x01\x85R.", "byte 17: REDUCE makes a set of a value that is no list");
    check(b"c_codecs\nencode\nU\x01a\x85R.", "byte 20: REDUCE encodes without naming an encoding");
    check(
        b"c_codecs\nencode\nU\x01aU\x05rot13\x86R.",
        "byte 27: REDUCE makes bytes of arguments that are not text in Latin-1",
    );
    check(b"c_codecs\nencode\nV\\u20ac\nU\x06latin1\x86R.", "byte 33: REDUCE encodes text that is not Latin-1");
}

#[test]
fn what_lies_outside_the_pickle() {
    for (bytes, name) in [(&b"\x82\x01."[..], "EXT1"), (b"\x83\x01\0.", "EXT2"), (b"\x84\x01\0\0\0.", "EXT4")] {
        check(
            bytes,
            &format!("byte 0: {name} is refused: extension codes stand for names in a registry of the writing program"),
        );
    }
    for (bytes, name) in [(&b"\x97."[..], "NEXT_BUFFER"), (b"\x98.", "READONLY_BUFFER")] {
        check(bytes, &format!("byte 0: {name} is refused: out-of-band buffers are not part of the pickle"));
    }
}

#[test]
fn deep_nesting() {
    let expect = |offset: u64| format!("byte {offset}: STOP asks for more than 1000 levels of nesting");
    let on_the_stack = [vec![b']'; 100_000], vec![b'a'; 99_999], vec![b'.']].concat();
    check(&on_the_stack, &expect(199_999));
    let by_tuples = [vec![b')'], vec![0x85; 100_000], vec![b'.']].concat();
    check(&by_tuples, &expect(100_001));
    let marks = [vec![b'('; 100_000], vec![b't'; 100_000], vec![b'.']].concat();
    check(&marks, &expect(200_000));
    // The deep part is reached first through the memo, then by a longer way.
    let thousand = [b")".to_vec(), vec![0x85; 999], b"q\x00.".to_vec()].concat();
    let limits = Limits { depth: 1000, ..Limits::default() };
    assert_eq!(read(&thousand[..], &AllowList::plain(), &limits).expect("just deep enough").depth(), 1000);
    let one_more = [b")".to_vec(), vec![0x85; 999], b"q\x00h\0\x85\x86.".to_vec()].concat();
    check(&one_more, &expect(1006));
}

#[test]
fn nesting_through_the_state_of_objects() {
    let object = b"cmodels\nPlain\n)\x81".to_vec();
    let deep = [object.repeat(5000), vec![b'b'; 4999], vec![b'.']].concat();
    let limits = Limits::default();
    assert_eq!(refusal(&deep, &lenient(), &limits), "byte 84999: STOP asks for more than 1000 levels of nesting");
    let own_state = [object.clone(), b"2b.".to_vec()].concat();
    assert_eq!(refusal(&own_state, &lenient(), &limits), "byte 18: STOP hands out a value that contains itself");
    let twice = [object, b"NbNb.".to_vec()].concat();
    assert_eq!(refusal(&twice, &lenient(), &limits), "byte 19: BUILD gives an object a second state");
    check(b"]Nb.", "byte 2: BUILD gives a state to a value that is no object");
}

#[test]
fn values_that_contain_themselves() {
    let cases: [&[u8]; 4] = [b"]q\0h\0a.", b"}q\0h\0h\0s.", b"](]q\0(h\0ee.", b"\x8fq\0(h\0\x90."];
    for bytes in cases {
        let offset = bytes.len() - 1;
        check(bytes, &format!("byte {offset}: STOP hands out a value that contains itself"));
        let limits = Limits { cycles: Cycles::Keep, ..Limits::default() };
        let kept = read(bytes, &AllowList::plain(), &limits).expect("cycles are kept");
        assert!(kept.depth() <= 2 && kept.walk() <= 5);
    }
}

#[test]
fn billion_laughs() {
    // Each tuple holds the one before twice: 2^100 values in 400 bytes.
    let mut bytes = b"K\x01\x85".to_vec();
    for _ in 0..100 {
        bytes.extend_from_slice(b"2\x86");
    }
    bytes.push(b'.');
    check(&bytes, "byte 203: STOP asks for more than 1073741824 values on a walk along all paths");
    let mut through_memo = b"](K\x01e\x94".to_vec();
    for index in 0..60_u8 {
        through_memo.extend_from_slice(&[b']', b'(', b'h', index, b'h', index, b'h', index, b'e', 0x94]);
    }
    through_memo.push(b'.');
    check(&through_memo, "byte 606: STOP asks for more than 1073741824 values on a walk along all paths");
}

#[test]
fn lengths_that_are_not_there() {
    check(b"\x8b\0\0\0\x80.", "byte 0: LONG4 has a length of -2147483648 bytes");
    check(b"\x8b\xff\xff\xff\x7f.", "byte 6: the pickle ends in the middle of LONG4");
    check(b"T\0\0\0\x80.", "byte 0: BINSTRING has a length of -2147483648 bytes");
    check(b"\x8d\0\0\0\0\0\0\0\x80.", "byte 0: BINUNICODE8 asks for more than 2147483648 bytes of text");
    check(b"\x8e\0\0\0\0\0\0\0\x80.", "byte 0: BINBYTES8 asks for more than 2147483648 bytes of text");
    check(b"\x96\xff\xff\xff\xff\xff\xff\xff\xff.", "byte 0: BYTEARRAY8 asks for more than 2147483648 bytes of text");
    check(b"X\xff\xff\xff\x7fabc", "byte 8: the pickle ends in the middle of BINUNICODE");
    check_limits(
        b"\x8e\0\0\0\0\0\0\0\x80.",
        &Limits { far_bytes: 10, ..Limits::default() },
        "byte 10: the pickle ends in the middle of BINBYTES8",
    );
    check_limits(
        b"\x8d\0\0\0\0\0\0\0\x80.",
        &Limits { text_bytes: u64::MAX, ..Limits::default() },
        "byte 0: BINUNICODE8 asks for more than 4294967295 bytes of text",
    );
}

#[test]
fn memo_indices() {
    check(b"Kp4294967296\n.", "byte 2: 0x34 is no opcode of a pickle");
    check(b"Np4294967296\n.", "byte 1: PUT asks for more than 67108864 memo entries");
    check(b"Nr\xff\xff\xff\xff.", "byte 1: LONG_BINPUT asks for more than 67108864 memo entries");
    check(b"Np-1\n.", "byte 1: PUT wants a memo index, and `-1` is none");
    check(b"Np99999999999999999999\n.", "byte 1: PUT wants a memo index, and `99999999999999999999` is none");
    check(b"g4294967296\n.", "byte 0: GET asks for memo entry 4294967296, which was never set");
    check(b"j\xff\xff\xff\xff.", "byte 0: LONG_BINGET asks for memo entry 4294967295, which was never set");
    check(b"h\0.", "byte 0: BINGET asks for memo entry 0, which was never set");
}

#[test]
fn more_than_the_limits() {
    let limits = Limits { nodes: 10, items: 8, text_bytes: 6, memo: 2, ..Limits::default() };
    check_limits(
        &b"]".repeat(20),
        &Limits { items: 99, ..limits.clone() },
        "byte 10: EMPTY_LIST asks for more than 10 values",
    );
    check_limits(&b"N".repeat(20), &limits, "byte 8: NONE asks for more than 8 places in containers");
    check_limits(&b"(".repeat(20), &limits, "byte 8: MARK asks for more than 8 places in containers");
    check_limits(b"](NNNNe(NNNNNe.", &limits, "byte 13: APPENDS asks for more than 8 places in containers");
    check_limits(b"U\x04aaaaU\x03bbb.", &limits, "byte 6: SHORT_BINSTRING asks for more than 6 bytes of text");
    check_limits(b"S'aaaaaaaaaaaaaaa'\n.", &limits, "byte 0: STRING asks for more than 6 bytes of text");
    check_limits(b"N\x94N\x94N\x94.", &limits, "byte 5: MEMOIZE asks for more than 2 memo entries");
}

#[test]
fn frames_that_lie() {
    check(
        b"\x80\x04\x95\x02\0\0\0\0\0\0\0N\x8c\x01a.",
        "byte 12: SHORT_BINUNICODE reaches to byte 15, beyond its frame, which ends at byte 13",
    );
    check(b"\x80\x04\x95\x09\0\0\0\0\0\0\0N.", "byte 12: STOP stands before the frame ends at byte 20");
    check(b"\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "byte 0: FRAME has a length of 18446744073709551615 bytes");
    check(
        b"\x95\x20\0\0\0\0\0\0\0\x95\x01\0\0\0\0\0\0\0N.",
        "byte 9: FRAME stands within the frame that ends at byte 41",
    );
    check(b"\x95\x20\0\0\0\0\0\0\0N", "byte 10: the pickle ends in the middle of the program");
}

#[test]
fn broken_programs() {
    check(b"", "byte 0: the pickle ends in the middle of the program");
    check(b"\xff", "byte 0: 0xff is no opcode of a pickle");
    check(b"\x80\x06N.", "byte 0: PROTO announces protocol 6, and 5 is the highest");
    check(b".", "byte 0: STOP finds too little on the stack");
    check(b"(.", "byte 1: STOP finds too little on the stack");
    check(b"t.", "byte 0: TUPLE finds no mark on the stack");
    check(b"0.", "byte 0: POP finds too little on the stack");
    check(b"K\x01(a.", "byte 3: APPEND finds too little on the stack");
    check(b"](K\x01(e.", "byte 5: APPENDS fills a value that cannot be filled in this way");
    check(b"]((e.", "byte 3: APPENDS finds too little on the stack");
    check(b"K\x01K\x02a.", "byte 4: APPEND fills a value that cannot be filled in this way");
    check(b"](K\x01u.", "byte 4: SETITEMS finds a key without a value");
    check(b"(K\x01d.", "byte 3: DICT finds a key without a value");
    check(b"](K\x01\x90.", "byte 4: ADDITEMS fills a value that cannot be filled in this way");
    check(b"Iabc\n.", "byte 0: INT wants a decimal integer, and `abc` is none");
    check(b"L1e5L\n.", "byte 0: LONG wants a decimal integer, and `1e5` is none");
    check(b"Fone\n.", "byte 0: FLOAT wants a float, and `one` is none");
    check(b"Sabc\n.", "byte 0: STRING wants a quoted string, and `abc` is none");
    check(b"V\\u12\n.", "byte 0: UNICODE wants a string with whole escapes, and `\\\\u12` is none");
    check(b"X\x02\0\0\0\xff\xfe.", "byte 0: BINUNICODE has text that is not UTF-8");
    check(b"P\xff\n.", "byte 0: PERSID has an id that is not UTF-8");
    check(b"K\x01K\x02\x93.", "byte 4: STACK_GLOBAL wants two strings");
    check(b"I12", "byte 3: the pickle ends in the middle of INT");
}

/// Gives some bytes, then fails.
struct Failing(u8);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("the disk is gone"))?;
        buffer[0] = b'N';
        Ok(1)
    }
}

#[test]
fn reading_that_fails() {
    let error = read(BufReader::new(Failing(3)), &AllowList::plain(), &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "byte 3: the disk is gone");
}
