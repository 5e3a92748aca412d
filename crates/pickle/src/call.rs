//! What becomes of classes, calls and instances: values that say what was asked for.

use std::io::BufRead;

use crate::arena::{Container, Kind, Node, ObjectParts};
use crate::fold::Fold;
use crate::reader::Reader;
use crate::value::Construction;
use crate::{Call, NodeId, PickleError, text};

/// A name that was popped as the class of an object or as what is called.
#[derive(Clone, Copy)]
struct Callee {
    global: u32,
    call: Call,
}

impl<R: BufRead, F: Fold> Reader<'_, R, F> {
    pub(crate) fn global_of_lines(&mut self) -> Result<(), PickleError> {
        let node = self.global_from_lines()?;
        self.push(node)
    }

    pub(crate) fn global_of_stack(&mut self) -> Result<(), PickleError> {
        let [module, name] = self.stack.pop_array().ok_or_else(|| self.underflow())?;
        let (Node::Str(module), Node::Str(name)) = (self.arena.node(module), self.arena.node(name)) else {
            return Err(self.malformed("wants two strings".to_owned()));
        };
        let (module, name) = (self.arena.str_at(module).to_owned(), self.arena.str_at(name).to_owned());
        let node = self.allowed(module, name)?;
        self.push(node)
    }

    /// REDUCE: a call with a tuple of arguments.
    pub(crate) fn reduce(&mut self) -> Result<(), PickleError> {
        let [callee, args] = self.stack.pop_array().ok_or_else(|| self.underflow())?;
        let callee = self.callee(callee)?;
        let args = self.tuple_items(args)?;
        self.call(callee, args)
    }

    /// NEWOBJ: `cls.__new__(cls, *args)`.
    pub(crate) fn new_object(&mut self) -> Result<(), PickleError> {
        let [class, args] = self.stack.pop_array().ok_or_else(|| self.underflow())?;
        let args = self.tuple_items(args)?;
        self.make(class, args, None)
    }

    /// `NEWOBJ_EX`: `cls.__new__(cls, *args, **kwargs)`.
    pub(crate) fn new_object_with_keywords(&mut self) -> Result<(), PickleError> {
        let [class, args, kwargs] = self.stack.pop_array().ok_or_else(|| self.underflow())?;
        let args = self.tuple_items(args)?;
        if !matches!(self.arena.node(kwargs), Node::Container(Kind::Dict, _)) {
            return Err(self.malformed("wants a dict of keyword arguments".to_owned()));
        }
        self.make(class, args, Some(kwargs))
    }

    /// INST: a call of a class named in two lines, with everything above the mark.
    pub(crate) fn inst(&mut self) -> Result<(), PickleError> {
        let class = self.global_from_lines()?;
        let start = self.pop_mark()?;
        self.call_with_values_from(class, start, start)
    }

    /// OBJ: the same with the class just above the mark.
    pub(crate) fn obj(&mut self) -> Result<(), PickleError> {
        let start = self.pop_mark()?;
        let class = *self.stack.from(start).first().ok_or_else(|| self.underflow())?;
        self.call_with_values_from(class, start, start + 1)
    }

    /// BUILD: gives an object its state.
    pub(crate) fn build(&mut self) -> Result<(), PickleError> {
        let state = self.pop()?;
        let object = self.stack.top().ok_or_else(|| self.underflow())?;
        let Node::Object(index) = self.arena.node(object) else {
            return Err(self.malformed("gives a state to a value that is no object".to_owned()));
        };
        let slot = &mut self.arena.objects[index as usize].state;
        if slot.is_some() {
            return Err(self.malformed("gives an object a second state".to_owned()));
        }
        *slot = Some(state);
        Ok(())
    }

    fn global_from_lines(&mut self) -> Result<NodeId, PickleError> {
        let mut line = || -> Result<String, PickleError> {
            let line = self.input.line(self.arena.text_left())?;
            String::from_utf8(line).map_err(|_| self.malformed("has a name that is not UTF-8".to_owned()))
        };
        let (module, name) = (line()?, line()?);
        self.allowed(module, name)
    }

    /// The node of a name, where it is on the list.
    fn allowed(&mut self, module: String, name: String) -> Result<NodeId, PickleError> {
        let allow = self.allow;
        let node = self.arena.global(&mut self.shared, &module, &name, || allow.look_up(&module, &name));
        let (offset, opcode) = self.input.opcode();
        node.map_err(|over| self.over(over))?.ok_or(PickleError::NotAllowed { offset, opcode, module, name })
    }

    fn callee(&self, node: NodeId) -> Result<Callee, PickleError> {
        match self.arena.node(node) {
            Node::Global(global) => Ok(Callee { global, call: self.arena.global_at(global).call }),
            Node::Object(index) => {
                let global = self.arena.objects[index as usize].global;
                match self.arena.global_at(global).call {
                    Call::Factory => Ok(Callee { global, call: Call::Factory }),
                    _ => Err(self.malformed("calls an instance of a class, and not the class".to_owned())),
                }
            }
            _ => Err(self.malformed("calls a value that is no class or function".to_owned())),
        }
    }

    fn tuple_items(&self, node: NodeId) -> Result<Container, PickleError> {
        match self.arena.node(node) {
            Node::Container(Kind::Tuple, index) => Ok(self.arena.containers[index as usize]),
            _ => Err(self.malformed("wants a tuple of arguments".to_owned())),
        }
    }

    fn call_with_values_from(&mut self, class: NodeId, start: usize, first: usize) -> Result<(), PickleError> {
        let callee = self.callee(class)?;
        let args = self.arena.push_container(Kind::Tuple, self.stack.from(first));
        self.stack.cut(start);
        let args = args.map_err(|over| self.over(over))?;
        let args = self.tuple_items(args)?;
        self.call(callee, args)
    }

    fn call(&mut self, callee: Callee, args: Container) -> Result<(), PickleError> {
        match callee.call {
            Call::Object | Call::Factory => self.object(callee.global, Construction::Call, args, None),
            Call::New | Call::Name => Err(self.not_callable(callee)),
            Call::Set => self.collected(Kind::Set, args),
            Call::FrozenSet => self.collected(Kind::FrozenSet, args),
            Call::Bytes => self.byte_string(args, Node::Bytes),
            Call::ByteArray => self.byte_string(args, Node::ByteArray),
            Call::Encode if self.arena.items_of(args).len() == 2 => self.byte_string(args, Node::Bytes),
            Call::Encode => Err(self.malformed("encodes without naming an encoding".to_owned())),
            Call::Reconstruct => self.reconstruct(args),
        }
    }

    fn make(&mut self, class: NodeId, args: Container, kwargs: Option<NodeId>) -> Result<(), PickleError> {
        let class = self.callee(class)?;
        match class.call {
            Call::Object | Call::Factory | Call::New => self.object(class.global, Construction::New, args, kwargs),
            _ => Err(self.not_callable(class)),
        }
    }

    fn object(
        &mut self,
        global: u32,
        construction: Construction,
        args: Container,
        kwargs: Option<NodeId>,
    ) -> Result<(), PickleError> {
        let (items, pairs) = (Container::default(), Container::default());
        let node =
            self.arena.push_object(ObjectParts { global, construction, args, kwargs, state: None, items, pairs });
        self.push_made(node)
    }

    /// `set(list)` and `frozenset(list)`.
    fn collected(&mut self, kind: Kind, args: Container) -> Result<(), PickleError> {
        let items = match self.arena.items_of(args) {
            [] => Vec::new(),
            [list] => match self.arena.node(*list) {
                Node::Container(Kind::List | Kind::SharedList | Kind::Tuple, index) => {
                    self.arena.items_of(self.arena.containers[index as usize]).to_vec()
                }
                _ => return Err(self.malformed("makes a set of a value that is no list".to_owned())),
            },
            _ => return Err(self.malformed("makes a set of several arguments".to_owned())),
        };
        self.container(kind, &items)
    }

    /// `bytes()`, `bytearray(bytes)`, `bytearray(text, "latin-1")` and `codecs.encode(text, "latin1")`.
    fn byte_string(&mut self, args: Container, kind: fn(crate::arena::Span) -> Node) -> Result<(), PickleError> {
        let nodes: Vec<Node> = self.arena.items_of(args).iter().map(|node| self.arena.node(*node)).collect();
        let bytes = match nodes[..] {
            [] => Vec::new(),
            [Node::Bytes(span)] => self.arena.bytes_at(span).to_vec(),
            // Empty and short strings of Python 2 are text here.
            [Node::Str(text)] => self.arena.str_at(text).as_bytes().to_vec(),
            [Node::Str(text), Node::Str(encoding)] if matches!(self.arena.str_at(encoding), "latin1" | "latin-1") => {
                let bytes = text::latin1(self.arena.str_at(text));
                bytes.ok_or_else(|| self.malformed("encodes text that is not Latin-1".to_owned()))?
            }
            _ => return Err(self.malformed("makes bytes of arguments that are not text in Latin-1".to_owned())),
        };
        let node = self.arena.push_bytes(&bytes, kind);
        self.push_made(node)
    }

    /// `copyreg._reconstructor(class, base, value)`: an instance of the class, made of the value where there is one.
    fn reconstruct(&mut self, args: Container) -> Result<(), PickleError> {
        let &[class, _base, value] = self.arena.items_of(args) else {
            return Err(self.malformed("reconstructs from other than three arguments".to_owned()));
        };
        let args = if matches!(self.arena.node(value), Node::None) {
            Container::default()
        } else {
            let tuple = self.arena.push_container(Kind::Tuple, &[value]);
            self.tuple_items(tuple.map_err(|over| self.over(over))?)?
        };
        self.make(class, args, None)
    }

    fn not_callable(&self, callee: Callee) -> PickleError {
        let (offset, opcode) = self.input.opcode();
        let global = self.arena.global_at(callee.global);
        let (module, name) = (global.module.clone(), global.name.clone());
        PickleError::NotCallable { offset, opcode, module, name }
    }
}
