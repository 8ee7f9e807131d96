//! What the tests share: the reference model, the vectors, gates made from the model's words, and
//! the C library with programs against it.
pub mod c;
pub mod gates;
pub mod reference;
pub mod vectors;
