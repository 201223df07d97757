"""Names in real certificates: as the core reads them, and as the `ssl` module does."""

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from mq9._core import Certificate
from mq9.server.certificates import alternative_names, distinguished_name, names_subject

ATTRIBUTES = (
    (NameOID.DOMAIN_COMPONENT, "org"),
    (NameOID.COUNTRY_NAME, "DE"),
    (NameOID.STATE_OR_PROVINCE_NAME, "Hessen"),
    (NameOID.LOCALITY_NAME, "Gießen"),
    (NameOID.ORGANIZATION_NAME, "Org, Inc"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, " Unit"),
    (NameOID.SERIAL_NUMBER, "17"),
    (NameOID.STREET_ADDRESS, "Weg 1"),
    (NameOID.POSTAL_CODE, "35390"),
    (NameOID.USER_ID, "ada"),
    (NameOID.GIVEN_NAME, "Ada"),
    (NameOID.SURNAME, "Lovelace"),
    (NameOID.TITLE, "Dr"),
    (NameOID.GENERATION_QUALIFIER, "I"),
    (NameOID.DN_QUALIFIER, "q"),
    (NameOID.PSEUDONYM, "p"),
    (NameOID.EMAIL_ADDRESS, "ada@example.org"),
    (NameOID.COMMON_NAME, "ada"),
)
OTHERS = (
    x509.UniformResourceIdentifier("spiffe://ada"),
    x509.DNSName("ada.example"),
    x509.RFC822Name("ada@example.org"),
    x509.DNSName("lovelace.example"),
)


@pytest.fixture(scope="module")
def made() -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [
        x509.RelativeDistinguishedName([x509.NameAttribute(*attribute)]) for attribute in ATTRIBUTES
    ]
    reference = trustme.CA().cert_pem.bytes()
    times = x509.load_pem_x509_certificate(reference)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(parts))
        .issuer_name(times.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(times.not_valid_before_utc)
        .not_valid_after(times.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(OTHERS), critical=True)
        .sign(key, hashes.SHA256())
    )


SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "1.2.840.113549.1.9.1",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "postalCode": "POSTALCODE",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def as_ssl_decodes(certificate: x509.Certificate, folder: Path) -> Certificate:
    file = folder / "certificate.pem"
    file.write_bytes(certificate.public_bytes(Encoding.PEM))
    found = ssl._ssl._test_decode_cert(str(file))  # type: ignore[attr-defined]
    others = list(found.get("subjectAltName", ()))
    return Certificate(
        subject=[
            [(SHORT_NAMES.get(name, name), value) for name, value in rdn]
            for rdn in found.get("subject", ())
        ],
        emails=[value for kind, value in others if kind == "email"],
        dns_names=[value for kind, value in others if kind == "DNS"],
        uris=[value for kind, value in others if kind == "URI"],
    )


def test_both_ways_to_read_a_certificate_find_the_same(
    made: x509.Certificate, tmp_path: Path
) -> None:
    names = Certificate.from_der(made.public_bytes(Encoding.DER))
    other = as_ssl_decodes(made, tmp_path)
    assert names.subject == other.subject
    assert len(names.subject) == len(ATTRIBUTES)
    assert alternative_names(names) == alternative_names(other)
    assert alternative_names(names) == [
        "ada@example.org",
        "ada.example",
        "lovelace.example",
        "spiffe://ada",
    ]


def test_the_subject_is_written_with_the_most_specific_part_first(made: x509.Certificate) -> None:
    names = Certificate.from_pem(made.public_bytes(Encoding.PEM))
    written = distinguished_name(names)
    assert written.startswith("CN=ada,1.2.840.113549.1.9.1=ada@example.org,pseudonym=p,")
    assert written.endswith(",OU=\\ Unit,O=Org\\, Inc,L=Gießen,ST=Hessen,C=DE,DC=org")
    assert names_subject(written, names)
    assert not names_subject(written.replace("CN=ada", "CN=bob"), names)


def test_what_is_no_certificate_is_refused(made: x509.Certificate) -> None:
    der = made.public_bytes(Encoding.DER)
    for wrong in (b"", b"nonsense", der[:-1], der + b"x"):
        with pytest.raises(ValueError, match=r"\w"):
            Certificate.from_der(wrong)
    with pytest.raises(ValueError, match="not in PEM form"):
        Certificate.from_pem(der)
