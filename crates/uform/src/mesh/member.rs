//! What one process says of itself to the others.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::{Error, Result, Status};

/// A number that no other attempt to join ever has: 128 random bits, drawn anew each time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce(pub(super) u128);

impl Nonce {
    /// A new one.
    ///
    /// # Errors
    /// [`Io`](Status::Io) when the system has no random numbers.
    pub(super) fn new() -> Result<Nonce> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            let message = format!("the system has no random numbers for joining a mesh: {error}");
            Error::new(Status::Io, message)
        })?;
        Ok(Nonce(u128::from_ne_bytes(bytes)))
    }

    /// As [`Display`](fmt::Display) writes it, and in no other spelling.
    pub(super) fn parse(text: &str) -> Option<Nonce> {
        let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let nonce = Nonce(u128::from_str_radix(text, 16).ok().filter(|_| plain)?);
        (nonce.to_string() == text).then_some(nonce)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> String {
        nonce.to_string()
    }
}

impl TryFrom<String> for Nonce {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Nonce, String> {
        Nonce::parse(&text).ok_or_else(|| format!("{text:?} is no nonce"))
    }
}

/// A device of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberDevice {
    /// As the vendor's tool writes it; `None` where the driver does not tell.
    pub uuid: Option<String>,
    /// The word of the class whose kernels run on it. A word, because another version of the
    /// library may know classes that this one does not.
    pub gpu_class: String,
}

/// One process's facts, the same from its joining to its leaving.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its index among `count`.
    pub index: u32,
    /// How many processes the run has, by what this one was told.
    pub count: u32,
    /// The library's version.
    pub version: String,
    /// Its devices, in its executor's order.
    pub devices: Vec<MemberDevice>,
    /// GPUs one multicast domain spans.
    pub gpus_per_multimem_domain: u32,
    /// Who it is.
    pub process: Process,
    /// Why this process cannot add up with others; `None`: it can.
    pub no_collectives: Option<String>,
}

/// What a process has made ready for a run, once all of its processes are known. A verdict has that of all, so it
/// is short where there is nothing to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prepared {
    /// Why it could not make and bind multicast memory; `None`: it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_multicast: Option<String>,
    /// A few bytes that everybody learns; of index 0, what the collectives need to meet. Hexadecimal in
    /// the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "hexadecimal")]
    pub payload: Vec<u8>,
    /// Why it cannot add up with the others after all; `None`: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_collectives: Option<String>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {} ({})", self.index, self.process)
    }
}

/// Bytes as text.
mod hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes
            .filter(|_| rest.is_empty())
            .ok_or_else(|| D::Error::custom("payload is not hexadecimal"))
    }
}
