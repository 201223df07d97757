//! The runtime: what a broker needs of the machine it runs on, without Python.

pub mod tls;
