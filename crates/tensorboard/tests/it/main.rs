//! Event files, read back by a decoder of the tests and by TensorBoard's own reader.

mod tensorboard;
mod writer;
