//! The stack machine: one opcode after another, each turned into nodes of the table.

use std::io::{BufRead, Seek};

use crate::arena::{Arena, FALSE, InputSpan, Kind, NONE, Node, Overrun, SharedNodes, Span, TRUE};
use crate::fold::{Fold, KeepAll, Puts};
use crate::input::{Input, Skip, skip_by_reading, skip_by_seeking};
use crate::measure::measure;
use crate::memo::Memo;
use crate::stack::Stack;
use crate::text::{self, Text};
use crate::{AllowList, Cycles, LimitKind, Limits, NodeId, Pickle, PickleError, big_int, opcode};

const HIGHEST_PROTOCOL: u8 = 5;

/// Reads one pickle and leaves the input just behind it.
///
/// A slice of bytes will do as input, or a file behind a buffer; only the values are kept, never the bytes as a whole.
///
/// # Errors
///
/// Where the pickle is broken, names what is not allowed, or exceeds the limits. The input may then stand anywhere.
pub fn read(input: impl BufRead, allow: &AllowList, limits: &Limits) -> Result<Pickle, PickleError> {
    Reader::new(input, skip_by_reading, allow, limits, KeepAll).run()
}

/// As [`read`], but dicts become numbers where `fold` takes them, as soon as all their pairs were set at once.
///
/// A pickle that adds to a container later than Python does, when it might have been taken already, is refused.
///
/// # Errors
///
/// As for [`read`].
pub fn read_folding(
    input: impl BufRead,
    allow: &AllowList,
    limits: &Limits,
    fold: impl Fold,
) -> Result<Pickle, PickleError> {
    Reader::new(input, skip_by_reading, allow, limits, fold).run()
}

/// As [`read`], but passes over long byte strings ([`Limits::far_bytes`]) without reading them.
///
/// # Errors
///
/// As for [`read`].
pub fn read_seek(input: impl BufRead + Seek, allow: &AllowList, limits: &Limits) -> Result<Pickle, PickleError> {
    Reader::new(input, skip_by_seeking, allow, limits, KeepAll).run()
}

pub(crate) struct Reader<'a, R, F> {
    pub(crate) input: Input<R>,
    pub(crate) allow: &'a AllowList,
    limits: &'a Limits,
    pub(crate) arena: Arena,
    pub(crate) shared: SharedNodes,
    pub(crate) stack: Stack,
    pub(crate) memo: Memo,
    pub(crate) fold: F,
    pub(crate) puts: Puts,
    /// Bytes of stack and memo that were counted.
    counted: u64,
    /// Where the frame that is being read ends.
    frame_end: Option<u64>,
}

impl<'a, R: BufRead, F: Fold> Reader<'a, R, F> {
    fn new(input: R, skip: Skip<R>, allow: &'a AllowList, limits: &'a Limits, fold: F) -> Self {
        Self {
            input: Input::new(input, skip),
            allow,
            limits,
            arena: Arena::new(limits.clone()),
            shared: SharedNodes::new(),
            stack: Stack::default(),
            memo: Memo::default(),
            fold,
            puts: Puts::default(),
            counted: 0,
            frame_end: None,
        }
    }

    fn run(mut self) -> Result<Pickle, PickleError> {
        if F::IS_ON {
            self.prepare_to_fold()?;
        }
        loop {
            let byte = self.input.next_opcode()?;
            if byte == opcode::STOP {
                return self.stop();
            }
            self.step(byte)?;
            if let Some(end) = self.frame_end {
                self.check_frame(end)?;
            }
        }
    }

    fn stop(mut self) -> Result<Pickle, PickleError> {
        let length = self.input.offset();
        if let Some(end) = self.frame_end.filter(|end| *end != length) {
            return Err(self.malformed(format!("stands before the frame ends at byte {end}")));
        }
        let root = self.pop()?;
        let measure = measure(&self.arena, root, self.limits).map_err(|what| self.too_much(what))?;
        if measure.walk > self.limits.walk {
            return Err(self.too_much(LimitKind::Walk));
        }
        if measure.has_cycle && self.limits.cycles == Cycles::Refuse {
            let (offset, opcode) = self.input.opcode();
            return Err(PickleError::Cycle { offset, opcode });
        }
        self.arena.shrink();
        Ok(Pickle { arena: self.arena, root, length, measure })
    }

    #[inline]
    fn step(&mut self, byte: u8) -> Result<(), PickleError> {
        match byte {
            opcode::BINGET => {
                let [index] = self.input.array()?;
                self.get(u64::from(index))?;
                self.more_gets();
                Ok(())
            }
            opcode::LONG_BINGET => {
                let index = u32::from_le_bytes(self.input.array()?);
                self.get(u64::from(index))?;
                self.more_gets();
                Ok(())
            }
            opcode::MEMOIZE => self.put(u64::from(self.memo.len())),
            opcode::BINPUT => {
                let [index] = self.input.array()?;
                self.put(u64::from(index))
            }
            opcode::LONG_BINPUT => {
                let index = u32::from_le_bytes(self.input.array()?);
                self.put(u64::from(index))
            }
            opcode::MARK => {
                self.check_room()?;
                self.stack.mark();
                Ok(())
            }

            opcode::NONE => self.push(NONE),
            opcode::NEWTRUE => self.push(TRUE),
            opcode::NEWFALSE => self.push(FALSE),
            opcode::BININT1 => {
                let [value] = self.input.array()?;
                let node = self.arena.small_int(&mut self.shared, value);
                self.push_made(node)
            }
            opcode::BININT2 => {
                let value = u16::from_le_bytes(self.input.array()?);
                self.push_node(Node::Int(i64::from(value)))
            }
            opcode::BININT => {
                let value = i32::from_le_bytes(self.input.array()?);
                self.push_node(Node::Int(i64::from(value)))
            }
            opcode::LONG1 => {
                let [length] = self.input.array()?;
                self.long(u64::from(length))
            }
            opcode::LONG4 => {
                let length = self.length_i32()?;
                self.long(length)
            }
            opcode::BINFLOAT => {
                let value = f64::from_be_bytes(self.input.array()?);
                self.push_node(Node::Float(value))
            }

            opcode::SHORT_BINUNICODE => {
                let [length] = self.input.array()?;
                self.unicode(u64::from(length))
            }
            opcode::BINUNICODE => {
                let length = u32::from_le_bytes(self.input.array()?);
                self.unicode(u64::from(length))
            }
            opcode::BINUNICODE8 => {
                let length = u64::from_le_bytes(self.input.array()?);
                self.unicode(length)
            }
            opcode::SHORT_BINSTRING => {
                let [length] = self.input.array()?;
                self.string(u64::from(length))
            }
            opcode::BINSTRING => {
                let length = self.length_i32()?;
                self.string(length)
            }
            opcode::SHORT_BINBYTES => {
                let [length] = self.input.array()?;
                self.bytes(u64::from(length), Node::Bytes)
            }
            opcode::BINBYTES => {
                let length = u32::from_le_bytes(self.input.array()?);
                self.bytes(u64::from(length), Node::Bytes)
            }
            opcode::BINBYTES8 => {
                let length = u64::from_le_bytes(self.input.array()?);
                self.bytes(length, Node::Bytes)
            }
            opcode::BYTEARRAY8 => {
                let length = u64::from_le_bytes(self.input.array()?);
                self.bytes(length, Node::ByteArray)
            }

            opcode::EMPTY_DICT => self.open_container(Kind::Dict),
            opcode::EMPTY_LIST => self.open_container(Kind::List),
            opcode::EMPTY_TUPLE => {
                let node = self.arena.empty_tuple(&mut self.shared);
                self.push_made(node)
            }
            opcode::EMPTY_SET => self.open_container(Kind::Set),
            opcode::TUPLE1 => self.tuple::<1>(),
            opcode::TUPLE2 => self.tuple::<2>(),
            opcode::TUPLE3 => self.tuple::<3>(),
            opcode::TUPLE => self.container_above_mark(Kind::Tuple),
            opcode::LIST => self.container_above_mark(Kind::List),
            opcode::FROZENSET => self.container_above_mark(Kind::FrozenSet),
            opcode::DICT => self.container_above_mark(Kind::Dict),
            opcode::SETITEMS | opcode::APPENDS | opcode::ADDITEMS => {
                let start = self.pop_mark()?;
                self.fill(byte, start)
            }
            opcode::SETITEM => {
                let start = self.place_below(2)?;
                self.fill(byte, start)
            }
            opcode::APPEND => {
                let start = self.place_below(1)?;
                self.fill(byte, start)
            }

            opcode::POP => self.pop_one(),
            opcode::POP_MARK => {
                let start = self.pop_mark()?;
                self.stack.cut(start);
                Ok(())
            }
            opcode::DUP => {
                let top = self.top()?;
                self.push(top)
            }

            opcode::GLOBAL => self.global_of_lines(),
            opcode::STACK_GLOBAL => self.global_of_stack(),
            opcode::REDUCE => self.reduce(),
            opcode::NEWOBJ => self.new_object(),
            opcode::NEWOBJ_EX => self.new_object_with_keywords(),
            opcode::INST => self.inst(),
            opcode::OBJ => self.obj(),
            opcode::BUILD => self.build(),
            opcode::BINPERSID => {
                let id = self.pop()?;
                self.container(Kind::Persistent, &[id])
            }

            opcode::PROTO => self.protocol(),
            opcode::FRAME => self.frame(),
            opcode::EXT1 | opcode::EXT2 | opcode::EXT4 => {
                Err(self.outside("extension codes stand for names in a registry of the writing program"))
            }
            opcode::NEXT_BUFFER | opcode::READONLY_BUFFER => {
                Err(self.outside("out-of-band buffers are not part of the pickle"))
            }
            _ => self.step_of_text(byte),
        }
    }

    /// The opcodes whose argument is a line of text; no protocol but 0 needs them.
    fn step_of_text(&mut self, byte: u8) -> Result<(), PickleError> {
        if opcode::name(byte).is_none() {
            return Err(PickleError::NoOpcode { offset: self.input.opcode().0, byte });
        }
        let line = self.input.line(self.arena.text_left())?;
        match byte {
            opcode::INT => match &line[..] {
                b"00" => self.push(FALSE),
                b"01" => self.push(TRUE),
                digits => self.decimal(digits),
            },
            opcode::LONG => self.decimal(line.strip_suffix(b"L").unwrap_or(&line)),
            opcode::FLOAT => {
                let value = std::str::from_utf8(&line).ok().and_then(|text| text.trim().parse().ok());
                let value = value.ok_or_else(|| self.wrong_text("float", &line))?;
                self.push_node(Node::Float(value))
            }
            opcode::STRING => {
                let bytes = text::quoted(&line).ok_or_else(|| self.wrong_text("quoted string", &line))?;
                let node = push_string(&mut self.arena, &bytes);
                self.push_made(node)
            }
            opcode::UNICODE => {
                let text = text::raw_unicode_escape(&line)
                    .ok_or_else(|| self.wrong_text("string with whole escapes", &line))?;
                let node = match &text {
                    Text::Whole(text) => self.arena.push_str(text),
                    Text::Surrogates(bytes) => self.arena.push_bytes(bytes, Node::Surrogates),
                };
                self.push_made(node)
            }
            opcode::PERSID => {
                let id =
                    String::from_utf8(line).map_err(|_| self.malformed("has an id that is not UTF-8".to_owned()))?;
                let id = self.arena.push_str(&id);
                let id = id.map_err(|over| self.over(over))?;
                self.container(Kind::Persistent, &[id])
            }
            opcode::GET => {
                let index = self.index(&line)?;
                self.get(index)
            }
            opcode::PUT => {
                let index = self.index(&line)?;
                self.put(index)
            }
            // Whatever has a name and no arm here or in `step`.
            _ => Err(self.malformed("is not known to this reader".to_owned())),
        }
    }

    fn protocol(&mut self) -> Result<(), PickleError> {
        let [protocol] = self.input.array()?;
        if protocol > HIGHEST_PROTOCOL {
            return Err(self.malformed(format!("announces protocol {protocol}, and {HIGHEST_PROTOCOL} is the highest")));
        }
        Ok(())
    }

    fn frame(&mut self) -> Result<(), PickleError> {
        let length = u64::from_le_bytes(self.input.array()?);
        if let Some(end) = self.frame_end {
            return Err(self.malformed(format!("stands within the frame that ends at byte {end}")));
        }
        let end = self.input.offset().checked_add(length);
        self.frame_end = Some(end.ok_or_else(|| self.malformed(format!("has a length of {length} bytes")))?);
        Ok(())
    }

    fn check_frame(&mut self, end: u64) -> Result<(), PickleError> {
        let offset = self.input.offset();
        if offset > end {
            return Err(self.malformed(format!("reaches to byte {offset}, beyond its frame, which ends at byte {end}")));
        }
        if offset == end {
            self.frame_end = None;
        }
        Ok(())
    }

    #[inline]
    fn get(&mut self, index: u64) -> Result<(), PickleError> {
        match self.memo.get(index) {
            Some(node) => self.push(node),
            None => Err(self.malformed(format!("asks for memo entry {index}, which was never set"))),
        }
    }

    /// Values from the memo come in long rows: the frames of a stack. As many of them as are at hand and sure to be right.
    #[inline]
    fn more_gets(&mut self) {
        let places = (self.limits.items as usize).saturating_sub(self.stack.len());
        let counted = self.counted.saturating_sub(self.stack.bytes() + self.memo.bytes());
        let room = places.min(counted as usize / size_of::<NodeId>());
        let left = self.frame_end.map_or(u64::MAX, |end| end.saturating_sub(self.input.offset()));
        let ready = self.input.at_hand();
        let mut rest = &ready[..ready.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        let before = rest.len();
        for _ in 0..room {
            let (index, behind) = match rest {
                [opcode::LONG_BINGET, a, b, c, d, behind @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), behind),
                [opcode::BINGET, index, behind @ ..] => (u32::from(*index), behind),
                _ => break,
            };
            let Some(node) = self.memo.get(u64::from(index)) else { break };
            self.stack.push(node);
            rest = behind;
        }
        let used = before - rest.len();
        self.input.consume(used);
    }

    #[inline]
    fn put(&mut self, index: u64) -> Result<(), PickleError> {
        let top = self.top()?;
        if !self.memo.put(index, top, self.limits.memo) {
            return Err(self.too_much(LimitKind::Memo));
        }
        if F::IS_ON {
            self.puts.put(index, top);
        }
        if self.stack.bytes() + self.memo.bytes() >= self.counted { self.count_more() } else { Ok(()) }
    }

    fn index(&self, line: &[u8]) -> Result<u64, PickleError> {
        let index = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
        index.ok_or_else(|| self.wrong_text("memo index", line))
    }

    fn length_i32(&mut self) -> Result<u64, PickleError> {
        let length = i32::from_le_bytes(self.input.array()?);
        u64::try_from(length).map_err(|_| self.malformed(format!("has a length of {length} bytes")))
    }

    fn decimal(&mut self, digits: &[u8]) -> Result<(), PickleError> {
        let text = std::str::from_utf8(digits).map(str::trim).unwrap_or_default();
        if let Ok(value) = text.parse() {
            return self.push_node(Node::Int(value));
        }
        let bytes = big_int::parse(text).ok_or_else(|| self.wrong_text("decimal integer", digits))?;
        let node = push_integer(&mut self.arena, &bytes);
        self.push_made(node)
    }

    #[inline]
    fn long(&mut self, length: u64) -> Result<(), PickleError> {
        self.check_text(length)?;
        let arena = &mut self.arena;
        let node = self.input.bytes(length, |bytes| Ok(push_integer(arena, bytes)))?;
        self.push_made(node)
    }

    #[inline]
    fn unicode(&mut self, length: u64) -> Result<(), PickleError> {
        self.check_text(length)?;
        let arena = &mut self.arena;
        let node = self.input.bytes(length, |bytes| {
            Ok(match std::str::from_utf8(bytes) {
                Ok(text) => Some(arena.push_str(text)),
                Err(_) if text::is_utf8_but_for_surrogates(bytes) => Some(arena.push_bytes(bytes, Node::Surrogates)),
                Err(_) => None,
            })
        })?;
        match node {
            Some(node) => self.push_made(node),
            None => Err(self.malformed("has text that is not UTF-8".to_owned())),
        }
    }

    fn string(&mut self, length: u64) -> Result<(), PickleError> {
        self.check_text(length)?;
        let arena = &mut self.arena;
        let node = self.input.bytes(length, |bytes| Ok(push_string(arena, bytes)))?;
        self.push_made(node)
    }

    fn bytes(&mut self, length: u64, kind: fn(Span) -> Node) -> Result<(), PickleError> {
        if length > self.limits.far_bytes {
            let offset = self.input.offset();
            self.input.pass_over(length)?;
            let node = self.arena.push_input_span(InputSpan { offset, length });
            return self.push_made(node);
        }
        self.check_text(length)?;
        let arena = &mut self.arena;
        let node = self.input.bytes(length, |bytes| Ok(arena.push_bytes(bytes, kind)))?;
        self.push_made(node)
    }

    #[inline]
    fn tuple<const N: usize>(&mut self) -> Result<(), PickleError> {
        let items = self.stack.pop_array::<N>().ok_or_else(|| self.underflow())?;
        self.container(Kind::Tuple, &items)
    }

    #[inline]
    pub(crate) fn container(&mut self, kind: Kind, items: &[NodeId]) -> Result<(), PickleError> {
        let node = self.arena.push_container(kind, items);
        self.push_made(node)
    }

    /// A container that is filled by and by.
    #[inline]
    fn open_container(&mut self, kind: Kind) -> Result<(), PickleError> {
        self.container(kind, &[])?;
        if F::IS_ON {
            self.stack.open_top();
        }
        Ok(())
    }

    fn container_above_mark(&mut self, kind: Kind) -> Result<(), PickleError> {
        let start = self.pop_mark()?;
        let items = self.stack.from(start);
        if kind == Kind::Dict && !items.len().is_multiple_of(2) {
            return Err(self.odd_pairs());
        }
        let node = self.arena.push_container(kind, items);
        self.stack.cut(start);
        self.push_made(node)?;
        if F::IS_ON {
            self.stack.open_top();
        }
        Ok(())
    }

    /// Adds the values from `start` on to the container below them.
    #[inline]
    fn fill(&mut self, byte: u8, start: usize) -> Result<(), PickleError> {
        let by_key = matches!(byte, opcode::SETITEM | opcode::SETITEMS);
        if by_key && !self.stack.from(start).len().is_multiple_of(2) {
            return Err(self.odd_pairs());
        }
        let target = self.stack.value_below(start).map(|node| self.arena.node(node));
        if F::IS_ON {
            self.check_fill(target, start)?;
            if byte == opcode::SETITEMS
                && matches!(target, Some(Node::Container(Kind::Dict, _)))
                && self.fold_dict(start)?
            {
                self.stack.cut(start);
                return Ok(());
            }
        }
        if let Some(Node::Container(Kind::List, index)) = target
            && matches!(byte, opcode::APPEND | opcode::APPENDS)
        {
            self.fill_list(index, start)?;
            self.stack.cut(start);
            return Ok(());
        }
        let items = self.stack.from(start);
        let filled = match target {
            Some(Node::Container(Kind::Dict, index)) if by_key => self.arena.append(index, items),
            Some(Node::Container(Kind::Set, index)) if byte == opcode::ADDITEMS => self.arena.append(index, items),
            Some(Node::Object(index)) if by_key => self.arena.append_to_object(index, |it| &mut it.pairs, items),
            Some(Node::Object(index)) => self.arena.append_to_object(index, |it| &mut it.items, items),
            Some(_) => return Err(self.malformed("fills a value that cannot be filled in this way".to_owned())),
            None => return Err(self.underflow()),
        };
        filled.map_err(|over| self.over(over))?;
        self.stack.cut(start);
        Ok(())
    }

    /// Takes the top off, be it a value or a mark.
    fn pop_one(&mut self) -> Result<(), PickleError> {
        if self.stack.pop().is_some() || self.stack.pop_mark().is_some() { Ok(()) } else { Err(self.underflow()) }
    }

    #[inline]
    pub(crate) fn push(&mut self, node: NodeId) -> Result<(), PickleError> {
        self.check_room()?;
        self.stack.push(node);
        Ok(())
    }

    #[inline]
    pub(crate) fn push_made(&mut self, node: Result<NodeId, Overrun>) -> Result<(), PickleError> {
        match node {
            Ok(node) => self.push(node),
            Err(over) => Err(self.over(over)),
        }
    }

    #[inline]
    fn push_node(&mut self, node: Node) -> Result<(), PickleError> {
        let node = self.arena.push(node);
        self.push_made(node)
    }

    #[inline]
    fn check_room(&mut self) -> Result<(), PickleError> {
        if self.stack.len() >= self.limits.items as usize {
            return Err(self.too_much(LimitKind::Items));
        }
        if self.stack.bytes() + self.memo.bytes() >= self.counted { self.count_more() } else { Ok(()) }
    }

    /// Counts more room for stack and memo, some at a time.
    #[cold]
    fn count_more(&mut self) -> Result<(), PickleError> {
        const MORE: u64 = 16 << 10;
        let more = (self.stack.bytes() + self.memo.bytes() - self.counted).next_multiple_of(MORE).max(MORE);
        self.arena.charge(more).map_err(|over| self.over(over))?;
        self.counted += more;
        Ok(())
    }

    #[inline]
    fn check_text(&self, length: u64) -> Result<(), PickleError> {
        self.arena.check_text(length).map_err(|over| self.over(over))
    }

    fn top(&self) -> Result<NodeId, PickleError> {
        self.stack.top().ok_or_else(|| self.underflow())
    }

    pub(crate) fn pop(&mut self) -> Result<NodeId, PickleError> {
        self.stack.pop().ok_or_else(|| self.underflow())
    }

    pub(crate) fn pop_mark(&mut self) -> Result<usize, PickleError> {
        self.stack.pop_mark().ok_or_else(|| self.malformed("finds no mark on the stack".to_owned()))
    }

    /// Where the last `count` values begin, with one more below them.
    fn place_below(&self, count: usize) -> Result<usize, PickleError> {
        self.stack.place_of_last(count + 1).map(|place| place + 1).ok_or_else(|| self.underflow())
    }

    pub(crate) fn underflow(&self) -> PickleError {
        self.malformed("finds too little on the stack".to_owned())
    }

    fn odd_pairs(&self) -> PickleError {
        self.malformed("finds a key without a value".to_owned())
    }

    fn wrong_text(&self, wanted: &str, line: &[u8]) -> PickleError {
        let text = crate::error::shown(&String::from_utf8_lossy(line));
        self.malformed(format!("wants a {wanted}, and `{text}` is none"))
    }

    pub(crate) fn malformed(&self, problem: String) -> PickleError {
        let (offset, opcode) = self.input.opcode();
        PickleError::Malformed { offset, opcode, problem }
    }

    fn outside(&self, reason: &'static str) -> PickleError {
        let (offset, opcode) = self.input.opcode();
        PickleError::Outside { offset, opcode, reason }
    }

    #[cold]
    pub(crate) fn over(&self, Overrun { what, limit }: Overrun) -> PickleError {
        let (offset, opcode) = self.input.opcode();
        PickleError::TooMuch { offset, opcode, what, limit }
    }

    #[cold]
    fn too_much(&self, what: LimitKind) -> PickleError {
        let limits = self.limits;
        let limit = match what {
            LimitKind::Nodes => u64::from(limits.nodes),
            LimitKind::Items => u64::from(limits.items),
            LimitKind::TextBytes => limits.text_bytes,
            LimitKind::Memo => u64::from(limits.memo),
            LimitKind::Depth => u64::from(limits.depth),
            LimitKind::Walk => limits.walk,
            LimitKind::Memory => limits.memory,
        };
        self.over(Overrun { what, limit })
    }
}

/// A string of Python 2: text where it is UTF-8, and bytes where it is not.
fn push_string(arena: &mut Arena, bytes: &[u8]) -> Result<NodeId, Overrun> {
    match std::str::from_utf8(bytes) {
        Ok(text) => arena.push_str(text),
        Err(_) => arena.push_bytes(bytes, Node::Bytes),
    }
}

/// An integer in two's complement, least byte first.
#[inline]
fn push_integer(arena: &mut Arena, bytes: &[u8]) -> Result<NodeId, Overrun> {
    // Addresses and times take six to eight bytes, and there are many of them in a memory snapshot.
    if let (1..=8, Some(value)) = (bytes.len(), big_int::small(bytes)) {
        return arena.push(Node::Int(value));
    }
    let trimmed = big_int::trim(bytes);
    match big_int::small(trimmed) {
        Some(value) => arena.push(Node::Int(value)),
        None => arena.push_bytes(trimmed, Node::BigInt),
    }
}
