//! The few protocol buffer messages of an event file, written by hand.
//!
//! Field numbers are those of `event.proto`, `summary.proto` and `tensor.proto` in TensorBoard, which never change.

/// A message under construction.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, field: u8, value: u64) -> Self {
        self.0.push(field << 3);
        self.number(value);
        self
    }

    fn double(mut self, field: u8, value: f64) -> Self {
        self.0.push(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.0.push(field << 3 | 2);
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn message(self, field: u8, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    fn float(mut self, field: u8, value: f32) -> Self {
        self.0.push(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The event that every file begins with.
pub(crate) fn version(time: f64) -> Vec<u8> {
    Message::default().double(1, time).bytes(3, b"brain.Event:2").0
}

/// Says that a run goes on at `step`: TensorBoard then forgets what earlier files say of this step and later ones.
pub(crate) fn start(time: f64, step: u64) -> Vec<u8> {
    const SESSION_LOG: u8 = 7;
    const START: u64 = 1;
    Message::default().double(1, time).varint(2, step).message(SESSION_LOG, &Message::default().varint(1, START)).0
}

pub(crate) fn scalar(time: f64, step: u64, tag: &str, value: f32) -> Vec<u8> {
    summary(time, step, &Message::default().bytes(1, tag.as_bytes()).float(2, value))
}

/// Text for TensorBoard's Text tab, which reads it as Markdown.
pub(crate) fn text(time: f64, step: u64, tag: &str, text: &str) -> Vec<u8> {
    const STRING: u64 = 7;
    const TENSOR_CLASS: u64 = 2;
    let plugin = Message::default().bytes(1, b"text");
    let metadata = Message::default().message(1, &plugin).varint(4, TENSOR_CLASS);
    let shape = Message::default().message(2, &Message::default().varint(1, 1));
    let tensor = Message::default().varint(1, STRING).message(2, &shape).bytes(8, text.as_bytes());
    summary(time, step, &Message::default().bytes(1, tag.as_bytes()).message(8, &tensor).message(9, &metadata))
}

fn summary(time: f64, step: u64, value: &Message) -> Vec<u8> {
    let summary = Message::default().message(1, value);
    Message::default().double(1, time).varint(2, step).message(5, &summary).0
}
