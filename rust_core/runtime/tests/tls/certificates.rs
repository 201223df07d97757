//! Names in certificates, and certificates that are none.

use mq9_runtime::tls::Certificate;
use rcgen::{CustomExtension, DistinguishedName, DnType, DnValue, SanType};

use crate::world::{Authority, Numbers};

fn part(name: &str, value: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.to_owned())]
}

#[test]
fn all_kinds_of_names_are_read_in_their_order() {
    let own = Authority::new("authority").issue(|params| {
        let mut name = DistinguishedName::new();
        name.push(DnType::from_oid(&[0, 9, 2342, 19200300, 100, 1, 25]), "org");
        name.push(DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap()));
        name.push(DnType::StateOrProvinceName, "Hessen");
        name.push(DnType::LocalityName, DnValue::BmpString("Gießen".try_into().unwrap()));
        name.push(DnType::OrganizationName, DnValue::TeletexString("Org".try_into().unwrap()));
        name.push(DnType::OrganizationalUnitName, "Einheit ☃");
        name.push(DnType::from_oid(&[2, 5, 4, 5]), "17");
        name.push(DnType::from_oid(&[2, 5, 4, 9]), "Weg 1");
        name.push(DnType::from_oid(&[2, 5, 4, 17]), "35390");
        name.push(DnType::from_oid(&[0, 9, 2342, 19200300, 100, 1, 1]), "ada");
        name.push(DnType::from_oid(&[2, 5, 4, 42]), "Ada");
        name.push(
            DnType::from_oid(&[1, 2, 840, 113549, 1, 9, 1]),
            DnValue::Ia5String("ada@example.org".try_into().unwrap()),
        );
        name.push(DnType::CommonName, "ada\0lovelace");
        params.distinguished_name = name;
        params.subject_alt_names = vec![
            SanType::URI("https://b".try_into().unwrap()),
            SanType::DnsName("b.example".try_into().unwrap()),
            SanType::IpAddress([127, 0, 0, 1].into()),
            SanType::Rfc822Name("b@example.org".try_into().unwrap()),
            SanType::DnsName("a.example".try_into().unwrap()),
            SanType::Rfc822Name("a@example.org".try_into().unwrap()),
        ];
    });
    let certificate = Certificate::from_pem(own.pem.as_bytes()).unwrap();
    assert_eq!(
        certificate.subject,
        [
            part("DC", "org"),
            part("C", "DE"),
            part("ST", "Hessen"),
            part("L", "Gießen"),
            part("O", "Org"),
            part("OU", "Einheit ☃"),
            part("SERIALNUMBER", "17"),
            part("STREET", "Weg 1"),
            part("POSTALCODE", "35390"),
            part("UID", "ada"),
            part("givenName", "Ada"),
            part("1.2.840.113549.1.9.1", "ada@example.org"),
            part("CN", "ada\0lovelace"),
        ]
    );
    assert_eq!(certificate.emails, ["b@example.org", "a@example.org"]);
    assert_eq!(certificate.dns_names, ["b.example", "a.example"]);
    assert_eq!(certificate.uris, ["https://b"]);
    assert_eq!(certificate, Certificate::from_der(&own.der).unwrap());
}

/// A length as DER writes it, and what has it.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = match content.len() {
        short @ 0..0x80 => vec![short as u8],
        middle @ 0x80..0x100 => vec![0x81, middle as u8],
        long => vec![0x82, (long >> 8) as u8, long as u8],
    };
    [&[tag], length.as_slice(), content].concat()
}

/// A certificate of version 1, unsigned, with nothing in it but a subject.
fn with_subject(subject: &[u8]) -> Vec<u8> {
    let empty = der(0x30, &[]);
    let fields = [
        der(2, &[1]),
        empty.clone(),
        empty.clone(),
        empty.clone(),
        subject.to_vec(),
        empty.clone(),
    ];
    let signed = der(0x30, &fields.concat());
    der(0x30, &[signed, empty, der(3, &[0])].concat())
}

fn attribute(id: u8, tag: u8, value: &[u8]) -> Vec<u8> {
    der(0x30, &[der(6, &[0x55, 4, id]), der(tag, value)].concat())
}

#[test]
fn a_part_of_several_attributes_keeps_their_order() {
    let both = [attribute(11, 12, b"unit"), attribute(3, 12, b"name")].concat();
    let subject = der(0x30, &[der(0x31, &both), der(0x31, &attribute(10, 19, b"org"))].concat());
    let certificate = Certificate::from_der(&with_subject(&subject)).unwrap();
    let expected = [[part("OU", "unit"), part("CN", "name")].concat(), part("O", "org")];
    assert_eq!(certificate.subject, expected);
}

#[test]
fn names_that_cannot_be_read_are_errors() {
    for (tag, value, expected) in [
        (12, b"\xff".as_slice(), "a name that is not UTF-8"),
        (19, b"\xe4", "a name that is not ASCII"),
        (22, "ä".as_bytes(), "a name that is not ASCII"),
        (30, b"\xd8\x00", "a name that is not UTF-16"),
        (30, b"abc", "a name that is not UTF-16"),
        (4, b"abc", "a name written as OCTET STRING"),
    ] {
        let subject = der(0x30, &der(0x31, &attribute(3, tag, value)));
        let error = Certificate::from_der(&with_subject(&subject)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let subject = der(0x30, &attribute(3, 12, b"x"));
    let error = Certificate::from_der(&with_subject(&subject)).unwrap_err();
    assert_eq!(error.to_string(), "SEQUENCE where SET belongs");
}

#[test]
fn alternative_names_that_cannot_be_read_are_errors() {
    for content in
        [b"".as_slice(), b"\x30\x01", b"\x30\x03\x82\x01\xe4", b"\x30\x02\x0c\x00", b"\x31\x00"]
    {
        let own = Authority::new("authority").issue(|params| {
            params.subject_alt_names = Vec::new();
            let names = CustomExtension::from_oid_content(&[2, 5, 29, 17], content.to_vec());
            params.custom_extensions = vec![names];
        });
        Certificate::from_der(&own.der).unwrap_err();
    }
    // One that is nothing but an address is no error, and no name.
    let own = Authority::new("authority").issue(|params| {
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    });
    let names = Certificate::from_der(&own.der).unwrap();
    assert!(names.dns_names.is_empty() && names.emails.is_empty() && names.uris.is_empty());
}

#[test]
fn alternative_names_may_be_critical() {
    let own = Authority::new("authority").issue(|params| {
        params.subject_alt_names = Vec::new();
        let mut names =
            CustomExtension::from_oid_content(&[2, 5, 29, 17], der(0x30, &der(0x82, b"host")));
        names.set_criticality(true);
        params.custom_extensions = vec![names];
    });
    assert_eq!(Certificate::from_der(&own.der).unwrap().dns_names, ["host"]);
}

#[test]
fn no_change_of_a_certificate_is_more_than_an_error() {
    let own = Authority::new("authority").issue(|_| ());
    for end in 0..own.der.len() {
        Certificate::from_der(&own.der[..end]).unwrap_err();
    }
    let mut errors = 0;
    for seed in 0..20_000 {
        let mut numbers = Numbers::new(seed);
        let mut der = own.der.to_vec();
        for _ in 0..=numbers.below(3) {
            let wrong = numbers.below(der.len());
            der[wrong] = numbers.below(256) as u8;
        }
        errors += usize::from(Certificate::from_der(&der).is_err());
        let count = numbers.below(300);
        Certificate::from_der(&numbers.bytes(count)).unwrap_err();
    }
    assert!(errors > 1000, "{errors}");
    for text in ["", "nonsense", "-----BEGIN CERTIFICATE-----\n"] {
        let error = Certificate::from_pem(text.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("not in PEM form: "), "{error}");
    }
}

#[test]
fn a_certificate_of_many_names_is_read_in_one_go() {
    // As many attributes in one part as fit into a certificate.
    let many = attribute(3, 12, b"").repeat(4000);
    let subject = der(0x30, &der(0x31, &many));
    let certificate = Certificate::from_der(&with_subject(&subject)).unwrap();
    assert_eq!(certificate.subject[0].len(), 4000);
}
