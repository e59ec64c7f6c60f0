//! The form of a sealed value.
//!
//! A text is `wl-sealed.1.<key id>.<data>`; a payload is a JSON object whose member `wl-sealed` has
//! `1.<key id>.<data>`, beside the fields that limits read. The data is base64 for URLs without
//! padding, of
//!
//! | bytes | what |
//! |---|---|
//! | 1, or 17 | the header: 0, 1 with 16 bytes, 2 with 16 bytes, or 3 |
//! | 24 | the nonce |
//! | as many as the plain text has | the cipher text |
//! | 16 | the tag |
//!
//! The nonce is HMAC-SHA-256 of the associated data and the plain text, cut to 24 bytes: the same
//! value at the same place is sealed the same way, as repeated starts and records need it, and
//! nothing else ever shares a nonce. Its first 12 bytes make the key of the message, by HMAC of
//! another key, and the last 12 are the nonce of AES-256-GCM: with 192 bits of nonce a key does not
//! wear out. The associated data is the version, the id of the key, the place and what is plain in
//! the envelope.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{aead, hmac};
use serde_json::{Map, Value};
use windlass_core::Payload;
use windlass_core::decide::SEALED_TEXT;

use super::keyring::{Key, Keyring, check_id};
use super::place::{Header, Parts, Place};

/// The member of a payload that is sealed.
const MEMBER: &str = "wl-sealed";

/// What is before and behind the sealed member if it has no other beside it.
const ALONE: (&str, &str) = ("{\"wl-sealed\":\"", "\"}");

/// The version of the form.
const VERSION: &str = "1";

const NONCE_BYTES: usize = 24;

/// Why a value cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unopened {
    #[error("was sealed with the key {0:?}, which is not in the keyring")]
    UnknownKey(String),
    #[error("cannot be opened with the key {0:?}: it was changed, or belongs elsewhere")]
    Refused(String),
    #[error("is sealed in a form that this version does not know")]
    UnknownForm,
    #[error("is not sealed, and the keyring requires that it is")]
    Plain,
}

/// A sealed value in parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    key: String,
    pub(super) header: Header,
    /// The nonce, the cipher text and the tag.
    body: Vec<u8>,
    /// What is beside it, which limits read.
    beside: Map<String, Value>,
}

impl Envelope {
    /// `<version>.<key id>.<data>`.
    fn parse(text: &str, beside: Map<String, Value>) -> Result<Self, Unopened> {
        let mut parts = text.splitn(3, '.');
        let (Some(VERSION), Some(key), Some(data)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(Unopened::UnknownForm);
        };
        // Errors name it, and it may be any text.
        check_id(key).map_err(|_| Unopened::UnknownForm)?;
        let data = URL_SAFE_NO_PAD.decode(data);
        let data = data.map_err(|_| Unopened::Refused(key.to_owned()))?;
        let (header, body) = Header::read(&data).ok_or(Unopened::UnknownForm)?;
        Ok(Envelope { key: key.to_owned(), header, body: body.to_vec(), beside })
    }

    /// The envelope that a payload is, if it is one.
    pub(super) fn of_payload(payload: &Payload) -> Option<Result<Self, Unopened>> {
        let text = payload.as_str();
        if !text.contains(MEMBER) {
            return None;
        }
        // As it is written here, if no limit reads anything: a large one is not parsed.
        let alone = text.strip_prefix(ALONE.0).and_then(|text| text.strip_suffix(ALONE.1));
        if let Some(sealed) = alone.filter(|sealed| !sealed.contains(['"', '\\'])) {
            return Some(Envelope::parse(sealed, Map::new()));
        }
        let Ok(Value::Object(mut members)) = payload.decode::<Value>() else { return None };
        let Some(Value::String(sealed)) = members.remove(MEMBER) else { return None };
        Some(Envelope::parse(&sealed, members))
    }

    /// The envelope that a text is, if it is one. What follows a space is of others.
    fn of_text(text: &str) -> Option<Result<Self, Unopened>> {
        let sealed = text.strip_prefix(SEALED_TEXT)?;
        let (sealed, _) = sealed.split_once(' ').unwrap_or((sealed, ""));
        Some(Envelope::parse(sealed, Map::new()))
    }

    /// It does not belong where it is.
    pub(super) fn refused(&self) -> Unopened {
        Unopened::Refused(self.key.clone())
    }

    /// What was sealed.
    pub(super) fn open(&self, keys: &Keyring, place: &Place<'_>) -> Result<String, Unopened> {
        let key = keys.find(&self.key).ok_or_else(|| Unopened::UnknownKey(self.key.clone()))?;
        let refused = || self.refused();
        if place.header() != self.header {
            return Err(refused());
        }
        let (nonce, sealed) = self.body.split_first_chunk::<NONCE_BYTES>().ok_or_else(refused)?;
        let associated = associated_data(key, place, &associated(&self.beside));
        let mut sealed = sealed.to_vec();
        let (cipher, nonce_of_cipher) = cipher(key, nonce);
        let opened = cipher
            .open_in_place(nonce_of_cipher, aead::Aad::from(associated.0), &mut sealed)
            .map_err(|_| refused())?;
        let text = String::from_utf8(opened.to_vec()).map_err(|_| refused())?;
        match self.beside.is_empty() || is_of(&self.beside, &text) {
            true => Ok(text),
            false => Err(refused()),
        }
    }
}

/// `<version>.<key id>.<data>` of a plain text at a place.
fn sealed(key: &Key, place: &Place<'_>, text: &str, plain: &str) -> String {
    let associated = associated_data(key, place, plain);
    let mut context = hmac::Context::with_key(&key.nonces);
    context.update(&(associated.0.len() as u64).to_be_bytes());
    context.update(&associated.0);
    context.update(text.as_bytes());
    let whole = context.sign();
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&whole.as_ref()[..NONCE_BYTES]);
    let (cipher, nonce_of_cipher) = cipher(key, &nonce);
    let mut data = Vec::with_capacity(17 + NONCE_BYTES + text.len() + aead::MAX_TAG_LEN);
    place.header().write(&mut data);
    data.extend(nonce);
    let mut body = text.as_bytes().to_vec();
    cipher
        .seal_in_place_append_tag(nonce_of_cipher, aead::Aad::from(associated.0), &mut body)
        .expect("a payload is far below the 64 GiB of AES-GCM");
    data.extend(body);
    format!("{VERSION}.{}.{}", key.id(), URL_SAFE_NO_PAD.encode(data))
}

fn associated_data(key: &Key, place: &Place<'_>, plain: &str) -> Parts {
    let mut parts = Parts::default();
    parts.add("windlass sealed");
    parts.add(VERSION);
    parts.add(key.id());
    parts.add(plain);
    place.add_to(&mut parts);
    parts
}

/// The cipher of one message, and its nonce.
fn cipher(key: &Key, nonce: &[u8; NONCE_BYTES]) -> (aead::LessSafeKey, aead::Nonce) {
    let (of_key, of_cipher) = nonce.split_at(NONCE_BYTES - aead::NONCE_LEN);
    let key = hmac::sign(&key.messages, of_key);
    let key = aead::UnboundKey::new(&aead::AES_256_GCM, key.as_ref()).expect("it has 32 bytes");
    let nonce = aead::Nonce::try_assume_unique_for_key(of_cipher).expect("it has 12 bytes");
    (aead::LessSafeKey::new(key), nonce)
}

/// The fields that limits read, in one order whoever wrote the JSON. It does not tell a name with a
/// dot from two names: [`is_of`] does.
fn associated(beside: &Map<String, Value>) -> String {
    fn walk(members: &Map<String, Value>, path: &str, found: &mut BTreeMap<String, String>) {
        for (name, value) in members {
            let path = format!("{path}.{name}");
            match value {
                Value::Object(members) => walk(members, &path, found),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => {
                    found.insert(path, value.to_string());
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(beside, "", &mut found);
    let parts = found.iter().map(|(path, value)| format!("{path}={value}\n"));
    parts.collect()
}

/// Whether what is beside an envelope is what [`copy`] takes of its plain text, and nothing else: each
/// field at its own place, with the same value.
fn is_of(beside: &Map<String, Value>, text: &str) -> bool {
    fn has(all: &Value, members: &Map<String, Value>) -> bool {
        members.iter().all(|(name, value)| {
            let is_same = match (all.get(name), value) {
                (Some(all), Value::Object(members)) => has(all, members),
                (Some(all), Value::String(_) | Value::Number(_) | Value::Bool(_)) => all == value,
                (Some(_), Value::Null | Value::Array(_)) | (None, _) => false,
            };
            // The parts of a path have no dots.
            is_same && !name.contains('.')
        })
    }
    serde_json::from_str(text).is_ok_and(|all: Value| has(&all, beside))
}

/// Seals a payload, with the fields of it beside that limits read.
pub(super) fn seal(key: &Key, place: &Place<'_>, payload: &Payload, fields: &[String]) -> Payload {
    let text = payload.as_str();
    // It says that there is nothing, as the size would.
    if text == "null" {
        return payload.clone();
    }
    let mut plain = Map::new();
    if !fields.is_empty()
        && let Ok(value) = payload.decode::<Value>()
    {
        fields.iter().for_each(|field| copy(&value, field, &mut plain));
    }
    let sealed = sealed(key, place, text, &associated(&plain));
    plain.insert(MEMBER.to_owned(), Value::String(sealed));
    Payload::encode(&plain).expect("texts and numbers have a form in JSON")
}

/// Copies a field that is the key of a lane, with the objects that it is in.
fn copy(from: &Value, field: &str, to: &mut Map<String, Value>) {
    match field.split_once('.') {
        None => match from.get(field) {
            Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
                to.insert(field.to_owned(), value.clone());
            }
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => {}
        },
        Some((name, rest)) => {
            let Some(from) = from.get(name) else { return };
            let inner = to.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                copy(from, rest, inner);
            }
        }
    }
}

/// Opens a payload that belongs to a place: as it is if it is not sealed and need not be.
pub(super) fn open(
    keys: &Keyring,
    place: &Place<'_>,
    payload: &Payload,
) -> Result<Payload, Unopened> {
    open_by(keys, payload, |envelope| envelope.open(keys, place))
}

/// Opens a payload in the way that its envelope tells.
pub(super) fn open_by(
    keys: &Keyring,
    payload: &Payload,
    opened: impl FnOnce(&Envelope) -> Result<String, Unopened>,
) -> Result<Payload, Unopened> {
    match Envelope::of_payload(payload) {
        Some(envelope) => {
            let envelope = envelope?;
            let text = opened(&envelope)?;
            Payload::from_json(text).map_err(|_| Unopened::Refused(envelope.key))
        }
        None if keys.is_required() && payload.as_str() != "null" => Err(Unopened::Plain),
        None => Ok(payload.clone()),
    }
}

/// What is told of a sealed value to who cannot open it, such as `sealed (key k1, 812 bytes)`: of a
/// payload by its JSON, or of a text. None if it is not sealed, or not whole.
///
/// ```
/// use windlass::store::sealed::describe;
///
/// assert_eq!(describe("no funds"), None);
/// let text = format!("wl-sealed.1.k1.{}", "A".repeat(60));
/// assert_eq!(describe(&text).as_deref(), Some("sealed (key k1, 4 bytes)"));
/// ```
pub fn describe(text: &str) -> Option<String> {
    let envelope = match Envelope::of_text(text) {
        Some(envelope) => envelope,
        None if text.contains(MEMBER) => {
            Envelope::of_payload(&Payload::from_json(text.to_owned()).ok()?)?
        }
        None => return None,
    };
    let Envelope { key, body, .. } = envelope.ok()?;
    let bytes = body.len().checked_sub(NONCE_BYTES + aead::MAX_TAG_LEN)?;
    Some(format!("sealed (key {key}, {bytes} bytes)"))
}

/// Seals a text.
pub(super) fn seal_text(key: &Key, place: &Place<'_>, text: &str) -> String {
    format!("{SEALED_TEXT}{}", sealed(key, place, text, ""))
}

/// Opens a text; it stays as it is if it is not sealed, or cannot be opened: it is for people.
pub(super) fn open_text(keys: &Keyring, place: &Place<'_>, text: String) -> String {
    match Envelope::of_text(&text) {
        Some(Ok(envelope)) => envelope.open(keys, place).unwrap_or(text),
        Some(Err(_)) | None => text,
    }
}
