//! Which devices options mean on a machine, and the class of the kernels that run on each.

use super::{is_driven, runtime_of};
use crate::device::{Device, Runtime, free_memory, has_faulted};
use crate::hardware::{GpuClass, GpuDevice};
use crate::placement::VramOptions;
use crate::{Error, Result, quoted};

/// The devices that options mean on a machine, and the class whose kernels run on each.
pub(super) fn choose(options: &VramOptions, listed: &[GpuDevice]) -> Result<Vec<(u32, GpuClass)>> {
    if listed.is_empty() {
        return Err(nothing_to_drive());
    }
    let pinned = options.gpu_class;
    if options.devices.is_empty() {
        let worth = |ordinal: u32, device: &GpuDevice| Worth {
            has_faulted: has_faulted(runtime_of(device.vendor), device.runtime_index),
            is_driven: is_driven(ordinal),
            free: device.uuid.as_deref().and_then(free_memory),
        };
        return free_device(pinned, listed, worth).map(|found| vec![found]);
    }
    let mut chosen = Vec::with_capacity(options.devices.len());
    for (at, ordinal) in options.devices.iter().copied().enumerate() {
        let wrong = match listed.get(ordinal as usize) {
            _ if options.devices[..at].contains(&ordinal) => format!("{ordinal} is there twice"),
            None => format!("this machine has no device {ordinal}"),
            Some(device) => {
                chosen.push((ordinal, class_on(device, ordinal, pinned)?));
                continue;
            }
        };
        let all: Vec<_> = (0..).zip(listed).map(|(ordinal, _)| ordinal).collect();
        return Err(Error::invalid(format!(
            "`devices` is {}: {wrong}; accepted, each once: {}",
            quoted::list(&options.devices),
            list(&all)
        )));
    }
    Ok(chosen)
}

/// The class whose kernels run on a device.
pub(super) fn class_on(
    device: &GpuDevice,
    ordinal: u32,
    pinned: Option<GpuClass>,
) -> Result<GpuClass> {
    let own = device.gpu_class.ok_or_else(|| {
        Error::unsupported(format!(
            "device {ordinal}, {}, is of no class that has kernels: supported are NVIDIA's from \
             compute capability 8.0 on, and AMD's gfx942, gfx950 and gfx1250",
            device.name
        ))
    })?;
    match pinned {
        Some(class) if !class.runs_on(own) => {
            let accepted = GpuClass::ALL.into_iter().filter(|class| class.runs_on(own));
            let accepted: Vec<_> = accepted.map(GpuClass::word).collect();
            Err(Error::invalid(format!(
                "`gpuClass` is {:?}, whose code device {ordinal}, {}, cannot run: it is of class {own}; \
                 accepted for it: {}",
                class.word(),
                device.name,
                accepted.join(", ")
            )))
        }
        pinned => Ok(pinned.unwrap_or(own)),
    }
}

/// What speaks for a device, and against it.
struct Worth {
    has_faulted: bool,
    is_driven: bool,
    /// Bytes of memory; `None`: not known.
    free: Option<u64>,
}

/// One that runs the class: one that works, then one that is not driven yet, then the one with most memory free,
/// then the first. Where all have faulted, opening it says so.
fn free_device(
    pinned: Option<GpuClass>,
    listed: &[GpuDevice],
    worth: impl Fn(u32, &GpuDevice) -> Worth,
) -> Result<(u32, GpuClass)> {
    let all = (0..).zip(listed);
    let able: Vec<(u32, &GpuDevice, GpuClass)> = all
        .clone()
        .filter_map(|(ordinal, device)| {
            Some((ordinal, device, class_on(device, ordinal, pinned).ok()?))
        })
        .collect();
    let best = able.iter().min_by_key(|(ordinal, device, _)| {
        let worth = worth(*ordinal, device);
        let taken = u64::MAX - worth.free.unwrap_or(0);
        (worth.has_faulted, worth.is_driven, taken, *ordinal)
    });
    match best {
        Some((ordinal, _, class)) => Ok((*ordinal, *class)),
        None => {
            // Whichever is first says what it lacks.
            let first = all.map(|(ordinal, device)| class_on(device, ordinal, pinned));
            Err(first
                .filter_map(Result::err)
                .next()
                .unwrap_or_else(nothing_to_drive))
        }
    }
}

/// Why there is no device, in the drivers' words.
fn nothing_to_drive() -> Error {
    let reasons: Vec<_> = Runtime::ALL
        .into_iter()
        .filter_map(|runtime| Some(Device::open(runtime, 0).err()?.to_string()))
        .collect();
    Error::unsupported(format!(
        "this machine has no GPU that can be driven: {}",
        reasons.join("; ")
    ))
}

/// Numbers as a message lists them.
pub(super) fn list(numbers: &[u32]) -> String {
    let words: Vec<_> = numbers.iter().map(u32::to_string).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Worth, choose, free_device};
    use crate::Status;
    use crate::hardware::{GpuClass, GpuDevice, GpuVendor};
    use crate::placement::VramOptions;

    fn device(name: &str, vendor: GpuVendor, gpu_class: Option<GpuClass>) -> GpuDevice {
        GpuDevice {
            vendor,
            vendor_ordinal: 0,
            gpu_class,
            compute_units: 100,
            memory_bytes: 1 << 36,
            name: name.to_owned(),
            uuid: None,
            pci_address: None,
            runtime_index: 0,
        }
    }

    fn machine() -> Vec<GpuDevice> {
        use GpuVendor::{Amd, Nvidia};
        vec![
            device("V100", Nvidia, None),
            device("H200", Nvidia, Some(GpuClass::NvidiaHopper)),
            device("RTX 4090", Nvidia, Some(GpuClass::NvidiaAda)),
            device("MI300X", Amd, Some(GpuClass::AmdCdna3)),
        ]
    }

    fn chosen(devices: &[u32], class: Option<GpuClass>) -> crate::Result<Vec<(u32, GpuClass)>> {
        let options = VramOptions {
            devices: devices.to_vec(),
            gpu_class: class,
            ..VramOptions::default()
        };
        choose(&options, &machine())
    }

    #[test]
    fn devices_run_their_own_class_or_the_lowest() {
        use GpuClass::{AmdCdna3, NvidiaAda, NvidiaAmpere, NvidiaHopper};
        let found = chosen(&[2, 1, 3], None).unwrap();
        assert_eq!(found, [(2, NvidiaAda), (1, NvidiaHopper), (3, AmdCdna3)]);
        let found = chosen(&[1, 2], Some(NvidiaAmpere)).unwrap();
        assert_eq!(found, [(1, NvidiaAmpere), (2, NvidiaAmpere)]);
        for (devices, class, status, words) in [
            (
                &[0, 9][..],
                None,
                Status::Unsupported,
                "device 0, V100, is of no class",
            ),
            (&[1, 9], None, Status::InvalidArgument, "no device 9"),
            (&[1, 9], None, Status::InvalidArgument, "0, 1, 2, 3"),
            (&[1, 1], None, Status::InvalidArgument, "1 is there twice"),
            (
                &[1, 2],
                Some(NvidiaHopper),
                Status::InvalidArgument,
                "accepted for it: nvidia-ampere, nvidia-ada",
            ),
            (
                &[3],
                Some(NvidiaAmpere),
                Status::InvalidArgument,
                "MI300X, cannot run",
            ),
        ] {
            let error = chosen(devices, class).unwrap_err();
            assert_eq!(error.status(), status, "{error}");
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn the_default_device_works_then_is_idle_then_has_most_memory_then_is_first() {
        let machine = machine();
        let pick_of = |faulted: &[u32], driven: &[u32], free: &[(&str, u64)], class| {
            let worth = |ordinal: u32, device: &GpuDevice| Worth {
                has_faulted: faulted.contains(&ordinal),
                is_driven: driven.contains(&ordinal),
                free: free
                    .iter()
                    .find(|(name, _)| *name == device.name)
                    .map(|(_, bytes)| *bytes),
            };
            free_device(class, &machine, worth).map(|(ordinal, _)| ordinal)
        };
        let pick = |driven: &[u32], free: &[(&str, u64)], class| pick_of(&[], driven, free, class);
        assert_eq!(pick(&[], &[], None).unwrap(), 1);
        assert_eq!(pick_of(&[1, 2], &[3], &[("H200", 9)], None).unwrap(), 3);
        assert_eq!(pick_of(&[1, 2, 3], &[1], &[], None).unwrap(), 2);
        assert_eq!(pick(&[1], &[], None).unwrap(), 2);
        assert_eq!(pick(&[1, 2, 3], &[], None).unwrap(), 1);
        let free = [("V100", 99), ("H200", 5), ("RTX 4090", 7)];
        assert_eq!(pick(&[], &free, None).unwrap(), 2);
        assert_eq!(pick(&[2], &free, None).unwrap(), 1);
        assert_eq!(pick(&[], &free, Some(GpuClass::AmdCdna3)).unwrap(), 3);
        let error = pick(&[], &[], Some(GpuClass::NvidiaRubin)).unwrap_err();
        assert_eq!(error.status(), Status::Unsupported, "{error}");
    }
}
