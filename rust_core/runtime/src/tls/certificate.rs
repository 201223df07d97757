//! The names in a certificate: its subject and the alternatives to it.
//!
//! Walks over DER once, in the order it was written, and keeps nothing but names. Whether the certificate is to be
//! trusted was decided before.

use der::asn1::{AnyRef, ObjectIdentifier};
use der::{Decode, Reader, SliceReader, Tag, Tagged};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A certificate that is not as X.509 wants it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(String);

/// Whom a certificate is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The parts of the subject in their order, each of one or more attributes, mostly one: short name or number, and
    /// value.
    pub subject: Vec<Vec<(String, String)>>,
    /// Alternative names that are email addresses.
    pub emails: Vec<String>,
    /// Alternative names that are names of hosts.
    pub dns_names: Vec<String>,
    /// Alternative names that are URIs.
    pub uris: Vec<String>,
}

const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// Short names as nats-server writes them; for the others the names OpenSSL has. The rest are written as numbers, also
/// the email address.
const ATTRIBUTES: [(ObjectIdentifier, &str); 22] = [
    (ObjectIdentifier::new_unwrap("2.5.4.3"), "CN"),
    (ObjectIdentifier::new_unwrap("2.5.4.4"), "surname"),
    (ObjectIdentifier::new_unwrap("2.5.4.5"), "SERIALNUMBER"),
    (ObjectIdentifier::new_unwrap("2.5.4.6"), "C"),
    (ObjectIdentifier::new_unwrap("2.5.4.7"), "L"),
    (ObjectIdentifier::new_unwrap("2.5.4.8"), "ST"),
    (ObjectIdentifier::new_unwrap("2.5.4.9"), "STREET"),
    (ObjectIdentifier::new_unwrap("2.5.4.10"), "O"),
    (ObjectIdentifier::new_unwrap("2.5.4.11"), "OU"),
    (ObjectIdentifier::new_unwrap("2.5.4.12"), "title"),
    (ObjectIdentifier::new_unwrap("2.5.4.13"), "description"),
    (ObjectIdentifier::new_unwrap("2.5.4.15"), "businessCategory"),
    (ObjectIdentifier::new_unwrap("2.5.4.17"), "POSTALCODE"),
    (ObjectIdentifier::new_unwrap("2.5.4.41"), "name"),
    (ObjectIdentifier::new_unwrap("2.5.4.42"), "givenName"),
    (ObjectIdentifier::new_unwrap("2.5.4.43"), "initials"),
    (ObjectIdentifier::new_unwrap("2.5.4.44"), "generationQualifier"),
    (ObjectIdentifier::new_unwrap("2.5.4.46"), "dnQualifier"),
    (ObjectIdentifier::new_unwrap("2.5.4.65"), "pseudonym"),
    (ObjectIdentifier::new_unwrap("2.5.4.97"), "organizationIdentifier"),
    (ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.1"), "UID"),
    (ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.25"), "DC"),
];

impl Certificate {
    /// Reads a certificate as it goes over the wire.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let parts = Parts::read(der)?;
        let mut certificate = Self { subject: subject(parts.subject)?, ..Self::default() };
        for extension in parts.extensions {
            let mut fields = SliceReader::new(extension?.value())?;
            let id: ObjectIdentifier = fields.decode()?;
            if id != ALTERNATIVE_NAMES {
                continue;
            }
            let mut value: AnyRef<'_> = fields.decode()?;
            if value.tag() == Tag::Boolean {
                value = fields.decode()?;
            }
            let names = AnyRef::from_der(expect(value, Tag::OctetString)?.value())?;
            certificate.add_alternatives(expect(names, Tag::Sequence)?)?;
        }
        Ok(certificate)
    }

    /// Reads the first certificate of a text in PEM form.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let der = CertificateDer::from_pem_slice(pem)
            .map_err(|error| CertificateError(format!("not in PEM form: {error}")))?;
        Self::from_der(&der)
    }

    fn add_alternatives(&mut self, names: AnyRef<'_>) -> Result<(), CertificateError> {
        for name in Elements::of(names)? {
            let name = name?;
            let Tag::ContextSpecific { number, .. } = name.tag() else {
                return Err(CertificateError::new("an alternative name of no kind"));
            };
            let list = match number.value() {
                1 => &mut self.emails,
                2 => &mut self.dns_names,
                6 => &mut self.uris,
                _ => continue,
            };
            list.push(ascii(name.value())?);
        }
        Ok(())
    }
}

/// The whole of the public key's field, as signers write it.
pub(super) fn public_key(der: &[u8]) -> Result<&[u8], CertificateError> {
    Ok(Parts::read(der)?.public_key)
}

struct Parts<'a> {
    subject: AnyRef<'a>,
    public_key: &'a [u8],
    extensions: Elements<'a>,
}

impl<'a> Parts<'a> {
    fn read(der: &'a [u8]) -> Result<Self, CertificateError> {
        let mut signed = SliceReader::new(expect(AnyRef::from_der(der)?, Tag::Sequence)?.value())?;
        let to_be_signed: AnyRef<'a> = signed.decode()?;
        let mut fields = SliceReader::new(expect(to_be_signed, Tag::Sequence)?.value())?;
        if context(Tag::peek(&fields)?) == Some(0) {
            // The version: certificates of the first have none.
            fields.tlv_bytes()?;
        }
        for _ in ["serial number", "signature", "issuer", "validity"] {
            fields.tlv_bytes()?;
        }
        let subject = expect(fields.decode()?, Tag::Sequence)?;
        let public_key = fields.tlv_bytes()?;
        let mut extensions = Elements(None);
        while !fields.is_finished() {
            let field: AnyRef<'a> = fields.decode()?;
            if context(field.tag()) == Some(3) {
                let all = expect(AnyRef::from_der(field.value())?, Tag::Sequence)?;
                extensions = Elements::of(all)?;
            }
        }
        Ok(Self { subject, public_key, extensions })
    }
}

/// What a sequence or a set is made of, one after the other.
struct Elements<'a>(Option<SliceReader<'a>>);

impl<'a> Elements<'a> {
    fn of(whole: AnyRef<'a>) -> Result<Self, CertificateError> {
        Ok(Self(Some(SliceReader::new(whole.value())?)))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<AnyRef<'a>, CertificateError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.as_mut().filter(|rest| !rest.is_finished())?;
        let element = rest.decode().map_err(CertificateError::from);
        if element.is_err() {
            self.0 = None;
        }
        Some(element)
    }
}

fn subject(name: AnyRef<'_>) -> Result<Vec<Vec<(String, String)>>, CertificateError> {
    Elements::of(name)?
        .map(|part| {
            Elements::of(expect(part?, Tag::Set)?)?
                .map(|attribute| {
                    let mut fields = SliceReader::new(expect(attribute?, Tag::Sequence)?.value())?;
                    let id: ObjectIdentifier = fields.decode()?;
                    Ok((short_name(id), text(fields.decode()?)?))
                })
                .collect()
        })
        .collect()
}

fn short_name(id: ObjectIdentifier) -> String {
    ATTRIBUTES
        .iter()
        .find(|(known, _)| *known == id)
        .map_or_else(|| id.to_string(), |(_, name)| (*name).to_owned())
}

fn text(value: AnyRef<'_>) -> Result<String, CertificateError> {
    let bytes = value.value();
    match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec())
            .map_err(|_| CertificateError::new("a name that is not UTF-8")),
        Tag::PrintableString | Tag::NumericString | Tag::Ia5String | Tag::VisibleString => {
            ascii(bytes)
        }
        // Latin-1 is what everybody takes it for.
        Tag::TeletexString => Ok(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => utf16(bytes),
        other => Err(CertificateError(format!("a name written as {other}"))),
    }
}

fn ascii(bytes: &[u8]) -> Result<String, CertificateError> {
    match str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Ok(text.to_owned()),
        _ => Err(CertificateError::new("a name that is not ASCII")),
    }
}

fn utf16(bytes: &[u8]) -> Result<String, CertificateError> {
    let broken = || CertificateError::new("a name that is not UTF-16");
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(broken());
    }
    char::decode_utf16(pairs.iter().map(|pair| u16::from_be_bytes(*pair)))
        .collect::<Result<_, _>>()
        .map_err(|_| broken())
}

fn context(tag: Tag) -> Option<u32> {
    match tag {
        Tag::ContextSpecific { number, .. } => Some(number.value()),
        _ => None,
    }
}

fn expect(found: AnyRef<'_>, tag: Tag) -> Result<AnyRef<'_>, CertificateError> {
    if found.tag() == tag {
        Ok(found)
    } else {
        Err(CertificateError(format!("{} where {tag} belongs", found.tag())))
    }
}

impl CertificateError {
    fn new(what: &str) -> Self {
        Self(what.to_owned())
    }
}

impl From<der::Error> for CertificateError {
    fn from(error: der::Error) -> Self {
        Self(error.to_string())
    }
}
