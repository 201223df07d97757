//! Handshakes: admission, what was agreed, and how a connection ends.

use mq9_runtime::tls::{Certificate, TlsError, TlsSettings};
use rcgen::{DnType, ExtendedKeyUsagePurpose, SanType, date_time_ymd};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CertificateError, Error};

use crate::world::{Authority, Client, Issued, World, connected, layer, shake_hands};

#[test]
fn a_client_of_each_version_gets_in() {
    let world = World::new();
    for (version, named, suite) in [
        (&TLS12, "1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (&TLS13, "1.3", "TLS_AES_256_GCM_SHA384"),
    ] {
        let (mut layer, mut client) = (world.layer(), world.client_with(&[version], None, None));
        assert!(layer.is_handshaking());
        assert!(layer.facts().is_none());
        let progress = shake_hands(&mut layer, &mut client).unwrap();
        assert!(progress.handshake_done && !progress.client_closed);
        assert!(!layer.is_handshaking());
        let facts = layer.facts().unwrap();
        assert_eq!((facts.version, facts.cipher_suite), (named, suite));
        assert_eq!(facts.client, None);
    }
}

#[test]
fn nothing_is_sent_too_early_or_too_late() {
    let world = World::new();
    let mut out = Vec::new();
    let mut early = world.layer();
    assert_eq!(early.send(b"INFO", &mut out), Err(TlsError::StillHandshaking));
    early.close(&mut out);
    assert!(out.is_empty());
    let (mut late, _client) = connected(&world);
    late.close(&mut out);
    let closed = out.len();
    assert!(closed > 0);
    assert_eq!(late.send(b"INFO", &mut out), Err(TlsError::Closed));
    late.close(&mut out);
    assert_eq!(out.len(), closed);
}

#[test]
fn what_a_client_says_with_the_end_of_its_handshake_is_heard() {
    let world = World::new();
    let (mut layer, mut client) = (world.layer(), world.client_with(&[&TLS13], None, None));
    let mut plain = Vec::new();
    layer.receive(&client.output(), &mut plain).unwrap();
    let mut answer = Vec::new();
    layer.take_pending(&mut answer);
    client.hears(&answer).unwrap();
    let progress = layer.receive(&client.says(b"CONNECT {}\r\n"), &mut plain).unwrap();
    assert!(progress.handshake_done);
    assert_eq!(plain, b"CONNECT {}\r\n");
}

#[test]
fn what_is_sent_comes_behind_the_handshake() {
    let world = World::new();
    let (mut layer, mut client) = (world.layer(), world.client_with(&[&TLS12], None, None));
    let (mut plain, mut answer) = (Vec::new(), Vec::new());
    layer.receive(&client.output(), &mut plain).unwrap();
    layer.take_pending(&mut answer);
    client.hears(&answer).unwrap();
    assert!(layer.receive(&client.output(), &mut plain).unwrap().handshake_done);
    // The server's last words of the handshake are still pending.
    assert!(layer.has_pending());
    answer.clear();
    layer.send(b"INFO {}\r\n", &mut answer).unwrap();
    assert!(!layer.has_pending());
    assert_eq!(client.hears(&answer).unwrap(), b"INFO {}\r\n");
}

/// What the server finds wrong with a client's certificate, and what the client hears of it.
fn turned_away(world: &World, settings: &TlsSettings, own: Option<&Issued>) -> (TlsError, Error) {
    let mut seen = Vec::new();
    for version in [&TLS12, &TLS13] {
        let mut client = world.client_with(&[version], None, own);
        let mut layer = layer(settings);
        let error = shake_hands(&mut layer, &mut client).unwrap_err();
        assert!(layer.is_handshaking());
        assert!(layer.facts().is_none());
        // The error stays, and no data is accepted.
        assert_eq!(layer.receive(b"", &mut Vec::new()), Err(error.clone()));
        assert_eq!(layer.send(b"x", &mut Vec::new()), Err(TlsError::Closed));
        let mut alert = Vec::new();
        layer.take_pending(&mut alert);
        seen.push((error, client.hears(&alert).unwrap_err()));
    }
    assert_eq!(seen[0], seen[1]);
    seen.remove(0)
}

#[test]
fn a_certificate_is_asked_for_when_wanted() {
    let world = World::new();
    let settings = world.verifying();
    let mut client = world.client_showing(&world.authority.issue(|_| ()));
    let mut layer = layer(&settings);
    assert!(shake_hands(&mut layer, &mut client).unwrap().handshake_done);
    let names = layer.facts().unwrap().client.clone().unwrap();
    assert_eq!(names.dns_names, ["localhost"]);

    let (error, heard) = turned_away(&world, &settings, None);
    assert_eq!(error, TlsError::Protocol(Error::NoCertificatesPresented));
    assert_eq!(heard, Error::AlertReceived(AlertDescription::CertificateRequired));
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let world = World::new();
    let stranger = Authority::new("stranger").issue(|_| ());
    let (error, heard) = turned_away(&world, &world.verifying(), Some(&stranger));
    assert_eq!(
        error,
        TlsError::Protocol(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    );
    assert_eq!(heard, Error::AlertReceived(AlertDescription::UnknownCA));
    // Not even that of an authority with the same name.
    let impostor = Authority::new("authority").issue(|_| ());
    let (error, _) = turned_away(&world, &world.verifying(), Some(&impostor));
    assert!(matches!(error, TlsError::Protocol(Error::InvalidCertificate(_))), "{error}");
}

#[test]
fn a_certificate_out_of_its_time_is_refused() {
    let world = World::new();
    for (from, until) in [(2001, 2002), (2901, 2902)] {
        let own = world.authority.issue(|params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(until, 1, 1);
        });
        let (error, heard) = turned_away(&world, &world.verifying(), Some(&own));
        let expired = error.to_string();
        assert!(
            expired.contains(if from == 2001 { "expired" } else { "not valid yet" }),
            "{expired}"
        );
        assert!(matches!(heard, Error::AlertReceived(_)));
    }
}

#[test]
fn a_certificate_for_servers_alone_is_refused() {
    let world = World::new();
    let own = world
        .authority
        .issue(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let (error, _) = turned_away(&world, &world.verifying(), Some(&own));
    assert!(matches!(error, TlsError::Protocol(Error::InvalidCertificate(_))), "{error}");
}

#[test]
fn a_certificate_that_nobody_asked_for_is_not_looked_at() {
    let world = World::new();
    let settings = TlsSettings { verify: false, ..world.verifying() };
    let own = Authority::new("stranger").issue(|_| ());
    let mut layer = layer(&settings);
    shake_hands(&mut layer, &mut world.client_showing(&own)).unwrap();
    assert_eq!(layer.facts().unwrap().client, None);
}

#[test]
fn the_names_of_a_client_are_known() {
    let world = World::new();
    let own = world.authority.issue(|params| {
        params.distinguished_name.push(DnType::OrganizationName, "Org, Inc");
        params.distinguished_name.push(DnType::CommonName, "bob");
        params.subject_alt_names = vec![
            SanType::DnsName("bob.example".try_into().unwrap()),
            SanType::Rfc822Name("bob@example.org".try_into().unwrap()),
            SanType::URI("spiffe://bob".try_into().unwrap()),
        ];
    });
    let mut layer = layer(&world.verifying());
    shake_hands(&mut layer, &mut world.client_showing(&own)).unwrap();
    let client = layer.facts().unwrap().client.clone().unwrap();
    let cn = client.subject.iter().find(|part| part[0].0 == "CN").unwrap();
    assert_eq!(cn, &[("CN".to_owned(), "bob".to_owned())]);
    assert!(client.subject.contains(&vec![("O".to_owned(), "Org, Inc".to_owned())]));
    assert_eq!(client.emails, ["bob@example.org"]);
    assert_eq!(client.dns_names, ["bob.example"]);
    assert_eq!(client.uris, ["spiffe://bob"]);
    assert_eq!(client, Certificate::from_der(&own.der).unwrap());
}

#[test]
fn a_certificate_whose_names_cannot_be_read_ends_the_handshake() {
    let world = World::new();
    // An email address that is not ASCII: X.509 does not allow it, and a verifier of signatures does not look.
    let names = [0x30, 0x03, 0x81, 0x01, 0xff];
    let own = world.authority.issue(|params| {
        params.subject_alt_names = Vec::new();
        let names = rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 17], names.to_vec());
        params.custom_extensions = vec![names];
    });
    let mut layer = layer(&world.verifying());
    let mut client = world.client_with(&[&TLS13], None, Some(&own));
    let mut plain = Vec::new();
    layer.receive(&client.output(), &mut plain).unwrap();
    let mut answer = Vec::new();
    layer.take_pending(&mut answer);
    client.hears(&answer).unwrap();
    let error = layer.receive(&client.says(b"CONNECT {}\r\n"), &mut plain).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the client's certificate cannot be read: a name that is not ASCII"
    );
    assert!(plain.is_empty());
    assert!(layer.facts().is_none());
}

#[test]
fn a_session_is_not_taken_up_again() {
    let world = World::new();
    let settings = world.settings();
    let config = mq9_runtime::tls::TlsConfig::new(&settings).unwrap();
    for version in [&TLS12, &TLS13] {
        let remembering = world.client_config(&[version], None, None);
        for _ in 0..2 {
            let mut client = Client::new(&remembering);
            let mut layer = mq9_runtime::tls::TlsLayer::new(&config).unwrap();
            shake_hands(&mut layer, &mut client).unwrap();
            assert_eq!(client.0.handshake_kind(), Some(rustls::HandshakeKind::Full));
            assert_eq!(client.0.tls13_tickets_received(), 0);
        }
    }
}

#[test]
fn the_end_is_announced_both_ways() {
    let world = World::new();
    for version in [&TLS12, &TLS13] {
        let (mut layer, mut client) = (world.layer(), world.client_with(&[version], None, None));
        shake_hands(&mut layer, &mut client).unwrap();
        let mut wire = client.says(b"last words");
        client.0.send_close_notify();
        wire.extend(client.output());
        // Nobody listens behind the end.
        wire.extend(b"\x17\x03\x03\x00\x05nothing");
        let mut plain = Vec::new();
        let progress = layer.receive(&wire, &mut plain).unwrap();
        assert!(progress.client_closed && !progress.handshake_done);
        assert_eq!(plain, b"last words");
        let progress = layer.receive(b"more", &mut plain).unwrap();
        assert!(progress.client_closed);
        assert_eq!(plain, b"last words");

        // What was asked for before is still answered.
        let mut out = Vec::new();
        layer.send(b"answer", &mut out).unwrap();
        layer.close(&mut out);
        assert_eq!(client.hears(&out).unwrap(), b"answer");
        assert!(client.0.process_new_packets().unwrap().peer_has_closed());
        out.clear();
        layer.close(&mut out);
        assert!(out.is_empty());
    }
}
