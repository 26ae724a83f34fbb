//! Which devices there are and what goes wrong with them, as environment variables say it.

use std::time::Duration;

/// A device as a variable describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// `9.0`, or `gfx942`.
    pub architecture: String,
    /// Multiprocessors, or compute units.
    pub units: u32,
    /// Memory.
    pub bytes: u64,
}

/// What goes wrong. Numbers count from 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Which allocation finds no memory.
    pub out_of_memory: Option<u64>,
    /// Which launch hits an illegal address.
    pub illegal_address: Option<u64>,
    /// Which launch takes longer, and how much.
    pub slow: Option<(u64, Duration)>,
    /// Which call returns a code, and which.
    pub code: Option<(u64, u32)>,
    /// The function that is not there.
    pub missing: Option<String>,
    /// Whether no memory can be bound to a multicast object.
    pub multicast_bind: bool,
}

/// The devices of a variable's value.
///
/// # Errors
/// What is wrong with it.
pub fn devices(value: &str) -> Result<Vec<Described>, String> {
    let texts = value.split(',').filter(|text| !text.trim().is_empty());
    texts.map(|text| device(text.trim())).collect()
}

fn device(text: &str) -> Result<Described, String> {
    let wrong = || format!("{text:?} is no device: expected name:architecture:units:MiB");
    let parts: Vec<&str> = text.split(':').collect();
    let [name, architecture, units, mebibytes] = parts[..] else {
        return Err(wrong());
    };
    Ok(Described {
        name: name.into(),
        architecture: architecture.into(),
        units: units.parse().map_err(|_| wrong())?,
        bytes: mebibytes.parse::<u64>().map_err(|_| wrong())? << 20,
    })
}

/// The faults of a variable's value, separated by commas.
///
/// # Errors
/// What is wrong with it: a fault that is not understood would be a test that tests nothing.
pub fn faults(value: &str) -> Result<Faults, String> {
    let mut faults = Faults::default();
    for text in value.split(',').filter(|text| !text.is_empty()) {
        let wrong = || format!("{text:?} is no fault that can be had");
        if let Some(symbol) = text.strip_prefix("missing:") {
            faults.missing = Some(symbol.into());
            continue;
        }
        if text == "multicast-bind" {
            faults.multicast_bind = true;
            continue;
        }
        let (what, when) = text.split_once('@').ok_or_else(wrong)?;
        let (when, how_long) = match when.split_once(':') {
            Some((when, how_long)) => (when, Some(how_long)),
            None => (when, None),
        };
        let when = when.parse().map_err(|_| wrong())?;
        match (what, how_long) {
            ("oom", None) => faults.out_of_memory = Some(when),
            ("fault", None) => faults.illegal_address = Some(when),
            ("slow", Some(how_long)) => {
                let digits = how_long.strip_suffix("ms").ok_or_else(wrong)?;
                let milliseconds = digits.parse().map_err(|_| wrong())?;
                faults.slow = Some((when, Duration::from_millis(milliseconds)));
            }
            (code, None) => {
                let digits = code.strip_prefix("code").ok_or_else(wrong)?;
                faults.code = Some((when, digits.parse().map_err(|_| wrong())?));
            }
            _ => return Err(wrong()),
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_anything_else_is_refused() {
        let found = devices("H200:9.0:132:143771, MI300X:gfx942:304:196608").unwrap();
        assert_eq!(found[0].bytes, 143_771 << 20);
        assert_eq!((found[1].units, &*found[1].architecture), (304, "gfx942"));
        assert_eq!(devices("").unwrap(), []);
        for wrong in ["H200", "H200:9.0:132", "H200:9.0:many:1", "a:b:1:2:3"] {
            assert!(devices(wrong).unwrap_err().contains(wrong));
        }
    }

    #[test]
    fn faults_are_read_and_anything_else_is_refused() {
        let found =
            faults("oom@3,fault@5,slow@2:50ms,code917@1,missing:cuInit,multicast-bind").unwrap();
        let expected = Faults {
            out_of_memory: Some(3),
            illegal_address: Some(5),
            slow: Some((2, Duration::from_millis(50))),
            code: Some((1, 917)),
            missing: Some("cuInit".into()),
            multicast_bind: true,
        };
        assert_eq!(found, expected);
        assert_eq!(faults("").unwrap(), Faults::default());
        for wrong in [
            "oom",
            "oom@x",
            "slow@1",
            "slow@1:50",
            "fire@1",
            "codeX@1",
            "oom@1:5ms",
            "multicast-bind@1",
        ] {
            assert!(faults(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
