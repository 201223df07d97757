//! Settings that can be used, and what is said of those that cannot.

use mq9_runtime::tls::{
    MinVersion, TlsConfig, TlsSettings, check_cipher_suite, cipher_suite_names,
};
use rustls::version::{TLS12, TLS13};

use crate::world::{Authority, World, layer, shake_hands};

fn refusal(settings: &TlsSettings) -> String {
    TlsConfig::new(settings).unwrap_err().to_string()
}

/// What is said of a certificate and a key that cannot be used.
fn not_a_pair(settings: &TlsSettings, reason: &str) {
    let cert_file = settings.cert_file.display();
    let key_file = settings.key_file.display();
    let start = format!(
        "{cert_file} and {key_file} are not a certificate and its key in PEM form: {reason}"
    );
    let said = refusal(settings);
    assert!(said.starts_with(&start), "{said} instead of {start}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let world = World::new();
    let gone = world.path("gone.pem");
    let expected = format!("cannot read {}: No such file or directory", gone.display());
    for settings in [
        TlsSettings { cert_file: gone.clone(), ..world.settings() },
        TlsSettings { key_file: gone.clone(), ..world.settings() },
        TlsSettings { ca_file: Some(gone.clone()), ..world.settings() },
    ] {
        assert_eq!(refusal(&settings), expected);
    }
    let folder = TlsSettings { cert_file: world.folder().to_owned(), ..world.settings() };
    let expected = format!("cannot read {}: Is a directory", world.folder().display());
    assert_eq!(refusal(&folder), expected);
}

#[test]
fn a_certificate_and_a_key_must_be_a_pair() {
    let world = World::new();
    let other = world.authority.issue(|_| ());
    let empty = world.write("empty.pem", "");
    let other_key = world.write("other.pem", &other.key_pem);
    let settings = world.settings();

    let changed = TlsSettings { key_file: other_key, ..settings.clone() };
    not_a_pair(&changed, "the key is not that of the certificate");
    let changed = TlsSettings { cert_file: empty.clone(), ..settings.clone() };
    not_a_pair(&changed, "there is no certificate in the first");
    let changed = TlsSettings { key_file: empty, ..settings.clone() };
    not_a_pair(&changed, "there is no key in the second");
    let changed = TlsSettings { key_file: world.path("cert.pem"), ..settings.clone() };
    not_a_pair(&changed, "there is no key in the second");

    let broken = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    let changed = TlsSettings { cert_file: world.write("a.pem", broken), ..settings.clone() };
    not_a_pair(&changed, "a certificate is broken: ");
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let changed = TlsSettings { cert_file: world.write("b.pem", nonsense), ..settings.clone() };
    not_a_pair(&changed, "");
    let cut = "-----BEGIN PRIVATE KEY-----\nAAAA\n";
    let changed = TlsSettings { key_file: world.write("c.pem", cut), ..settings.clone() };
    not_a_pair(&changed, "the key is broken: ");
    let nonsense = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let changed = TlsSettings { key_file: world.write("d.pem", nonsense), ..settings };
    not_a_pair(&changed, "the key is of a kind that is not supported, or broken");
}

#[test]
fn an_encrypted_key_is_refused() {
    let world = World::new();
    let newer =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
        DEK-Info: AES-128-CBC,6AF1F0\n\nMIIB\n-----END RSA PRIVATE KEY-----\n";
    for text in [newer, older] {
        let key_file = world.write("encrypted.pem", text);
        let settings = TlsSettings { key_file, ..world.settings() };
        not_a_pair(&settings, "the key is encrypted, and mq9 takes no password for it");
    }
}

#[test]
fn a_file_of_authorities_holds_certificates() {
    let world = World::new();
    let key = std::fs::read(world.path("key.pem")).unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (content, reason) in [
        (b"".as_slice(), "there is none in it"),
        (&key, "there is none in it"),
        (broken.as_bytes(), ""),
        (b"-----BEGIN CERTIFICATE-----\nAAAA", "a certificate is broken: "),
    ] {
        let file = world.write("authorities.pem", content);
        let start = format!("{} holds no certificates in PEM form: {reason}", file.display());
        // Also when nobody asks for it: whoever names it wants it read.
        for verify in [false, true] {
            let settings = TlsSettings { ca_file: Some(file.clone()), verify, ..world.settings() };
            let said = refusal(&settings);
            assert!(said.starts_with(&start), "{said}");
        }
    }
}

#[test]
fn a_chain_is_shown_in_full() {
    let world = World::new();
    let chain = std::fs::read_to_string(world.path("cert.pem")).unwrap() + &world.authority.pem();
    let settings = TlsSettings { cert_file: world.write("chain.pem", chain), ..world.settings() };
    let (mut layer, mut client) = (layer(&settings), world.client());
    shake_hands(&mut layer, &mut client).unwrap();
    assert_eq!(client.0.peer_certificates().unwrap().len(), 2);
}

#[test]
fn cipher_suites_have_the_names_of_iana() {
    let expected = [
        "TLS_AES_256_GCM_SHA384",
        "TLS_AES_128_GCM_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ];
    assert_eq!(cipher_suite_names(), expected);
    for name in expected {
        check_cipher_suite(name).unwrap();
    }
}

#[test]
fn cipher_suites_that_are_not_offered_are_refused_with_the_reason() {
    let world = World::new();
    for (name, start) in [
        ("RC4", "unknown cipher suite 'RC4'; known are TLS_AES_256_GCM_SHA384, "),
        ("", "unknown cipher suite ''; known are "),
        (
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            "cipher suite 'TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA' encrypts in CBC mode and is not available; known are ",
        ),
        (
            "TLS_RSA_WITH_AES_128_GCM_SHA256",
            "cipher suite 'TLS_RSA_WITH_AES_128_GCM_SHA256' has no forward secrecy (RSA key exchange) and is not \
             available; known are ",
        ),
    ] {
        let settings = TlsSettings { cipher_suites: vec![name.to_owned()], ..world.settings() };
        let said = refusal(&settings);
        assert!(said.starts_with(start), "{said}");
        assert_eq!(said, check_cipher_suite(name).unwrap_err().to_string());
    }
}

/// The suite that a client of all of them gets.
fn suite_of(
    world: &World,
    chosen: &[&str],
    version: &'static rustls::SupportedProtocolVersion,
) -> &'static str {
    let cipher_suites = chosen.iter().map(|name| (*name).to_owned()).collect();
    let settings = TlsSettings { cipher_suites, ..world.settings() };
    let (mut layer, mut client) = (layer(&settings), world.client_with(&[version], None, None));
    shake_hands(&mut layer, &mut client).unwrap();
    layer.facts().unwrap().cipher_suite
}

#[test]
fn the_suites_chosen_are_used_in_their_order() {
    let world = World::new();
    let chacha = "TLS_CHACHA20_POLY1305_SHA256";
    let older = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    let preferred = "TLS_AES_256_GCM_SHA384";
    let older_preferred = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    assert_eq!(suite_of(&world, &[], &TLS13), preferred);
    assert_eq!(suite_of(&world, &[chacha], &TLS13), chacha);
    assert_eq!(suite_of(&world, &[chacha, preferred], &TLS13), chacha);
    assert_eq!(suite_of(&world, &[preferred, chacha], &TLS13), preferred);
    assert_eq!(suite_of(&world, &[older, older_preferred], &TLS12), older);
    // A version that none was chosen of has all of its own.
    assert_eq!(suite_of(&world, &[chacha], &TLS12), older_preferred);
    assert_eq!(suite_of(&world, &[older], &TLS13), preferred);
}

#[test]
fn a_suite_that_was_not_chosen_is_not_spoken() {
    let world = World::new();
    for (chosen, wanted, version) in [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", &TLS13),
        (
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            &TLS12,
        ),
    ] {
        let settings = TlsSettings { cipher_suites: vec![chosen.to_owned()], ..world.settings() };
        for (suite, works) in [(chosen, true), (wanted, false)] {
            let mut client = world.client_with(&[version], Some(suite), None);
            let mut layer = layer(&settings);
            assert_eq!(shake_hands(&mut layer, &mut client).is_ok(), works, "{suite}");
        }
    }
}

#[test]
fn the_oldest_version_is_a_setting() {
    let world = World::new();
    let newest = TlsSettings { min_version: MinVersion::V13, ..world.settings() };
    for (settings, version, works) in [
        (world.settings(), &TLS12, true),
        (world.settings(), &TLS13, true),
        (newest.clone(), &TLS12, false),
        (newest, &TLS13, true),
    ] {
        let mut client = world.client_with(&[version], None, None);
        assert_eq!(shake_hands(&mut layer(&settings), &mut client).is_ok(), works);
    }
}

#[test]
fn versions_are_named_as_in_the_configuration() {
    assert_eq!("1.2".parse(), Ok(MinVersion::V12));
    assert_eq!("1.3".parse(), Ok(MinVersion::V13));
    let error = "1.1".parse::<MinVersion>().unwrap_err();
    assert_eq!(error.to_string(), "min_version '1.1' is neither 1.2 nor 1.3");
}

#[test]
fn a_reload_is_a_new_config_and_leaves_the_old_one() {
    let world = World::new();
    let before = TlsConfig::new(&world.settings()).unwrap();
    let kept = before.clone();
    let stranger = Authority::new("stranger").issue(|_| ());
    world.write("cert.pem", &stranger.pem);
    world.write("key.pem", &stranger.key_pem);
    let after = TlsConfig::new(&world.settings()).unwrap();
    for (config, known) in [(kept, true), (after, false)] {
        let mut layer = mq9_runtime::tls::TlsLayer::new(&config).unwrap();
        assert_eq!(shake_hands(&mut layer, &mut world.client()).is_ok(), known);
    }
}
