//! The encryption of one connection: what a megabyte, a hundred small records and a handshake cost the server.

// The macros of criterion make a public function without a comment.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mq9_runtime::tls::{TlsConfig, TlsLayer, TlsSettings};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// What is read from a socket at a time.
const READ: usize = 64 * 1024;
const RECORDS: usize = 100;
const RECORD: usize = 200;

struct World {
    server: TlsConfig,
    client: Arc<ClientConfig>,
}

impl World {
    /// A server that prefers the suite, and a client that knows the server.
    fn new(suite: &str) -> World {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cert_file = folder.path().join("cert.pem");
        let key_file = folder.path().join("key.pem");
        std::fs::write(&cert_file, own.cert.pem()).unwrap();
        std::fs::write(&key_file, own.signing_key.serialize_pem()).unwrap();
        let cipher_suites = vec![suite.to_owned()];
        let settings = TlsSettings { cert_file, key_file, cipher_suites, ..Default::default() };
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        World { server: TlsConfig::new(&settings).unwrap(), client: Arc::new(client) }
    }

    /// Both ends of a connection, and how long the server took.
    fn connect(&self) -> (TlsLayer, ClientConnection, Duration) {
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(self.client.clone(), name).unwrap();
        let (mut plain, mut answer) = (Vec::new(), Vec::new());
        let began = Instant::now();
        let mut layer = TlsLayer::new(&self.server).unwrap();
        let mut taken = began.elapsed();
        while layer.is_handshaking() {
            let wire = output(&mut client);
            let began = Instant::now();
            layer.receive(&wire, &mut plain).unwrap();
            layer.take_pending(&mut answer);
            taken += began.elapsed();
            let mut rest = answer.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
            }
            answer.clear();
        }
        (layer, client, taken)
    }
}

fn output(client: &mut ClientConnection) -> Vec<u8> {
    let mut wire = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut wire).unwrap();
    }
    wire
}

/// Encrypts each part as records of its own.
fn says<'a>(client: &mut ClientConnection, parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    client.set_buffer_limit(None);
    for part in parts {
        client.writer().write_all(part).unwrap();
    }
    output(client)
}

fn bench_tls(c: &mut Criterion) {
    let megabyte = vec![b'x'; 1 << 20];
    let small = vec![b'x'; RECORDS * RECORD];
    for suite in
        ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]
    {
        let world = World::new(suite);
        let mut group = c.benchmark_group(suite);
        group.bench_function("handshake", |b| {
            b.iter_custom(|rounds| (0..rounds).map(|_| world.connect().2).sum());
        });
        let parts = [(&megabyte, 1 << 20, "1 MiB"), (&small, RECORD, "100 records of 200 B")];
        for (data, part, name) in parts {
            group.throughput(Throughput::Bytes(data.len() as u64));
            let (mut layer, mut client, _) = world.connect();
            let mut plain = Vec::new();
            group.bench_function(format!("receive {name}"), |b| {
                b.iter_batched(
                    || says(&mut client, data.chunks(part)),
                    |wire| {
                        plain.clear();
                        for piece in wire.chunks(READ) {
                            layer.receive(piece, &mut plain).unwrap();
                        }
                        assert_eq!(plain.len(), data.len());
                    },
                    BatchSize::SmallInput,
                );
            });
            let (mut layer, _client, _) = world.connect();
            let mut out = Vec::new();
            group.bench_function(format!("send {name}"), |b| {
                b.iter(|| {
                    out.clear();
                    for piece in data.chunks(part) {
                        layer.send(piece, &mut out).unwrap();
                    }
                    black_box(out.len())
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, bench_tls);
criterion_main!(benches);
