//! The film sharpener: its figures against another implementation's, what its outputs see, evaluation in tiles, that it
//! learns, and films in files.

mod frames;
mod kit;
mod lpips;
mod network;
