//! AMD's devices as Linux lists them: the files under `/sys/class/kfd/kfd/topology/nodes`,
//! one folder a node, whose `properties` are lines of a name and a number.

use std::fs;
use std::path::Path;

/// Where the system keeps them.
pub(super) const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

/// A node that is a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// As in `0000:3b:00.0`.
    pub pci_address: String,
    /// Such as `gfx942`.
    pub architecture: String,
}

/// The GPUs by their places on the bus, which is `rocm-smi`'s order. None where nothing can be read.
pub(super) fn gpus(nodes: &Path) -> Vec<Node> {
    let entries = fs::read_dir(nodes).into_iter().flatten().flatten();
    let files =
        entries.filter_map(|entry| fs::read_to_string(entry.path().join("properties")).ok());
    let mut gpus: Vec<Node> = files.filter_map(|file| node(&file)).collect();
    gpus.sort_by(|one, other| one.pci_address.cmp(&other.pci_address));
    gpus
}

fn node(properties: &str) -> Option<Node> {
    let of = |name: &str| {
        let mut lines = properties.lines().map(|line| line.split_once(' '));
        lines.find_map(|line| line.and_then(|(key, value)| (key == name).then_some(value)))
    };
    let number = |name: &str| of(name)?.trim().parse::<u64>().ok();
    // A CPU is a node, too, without lanes.
    number("simd_count").filter(|&count| count > 0)?;
    let (domain, location) = (number("domain").unwrap_or(0), number("location_id")?);
    let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
    // Decimal digits in pairs but for the last two, which are hexadecimal: 90402 is gfx942,
    // 90010 is gfx90a.
    let version = number("gfx_target_version")?;
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    Some(Node {
        pci_address: format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"),
        architecture: format!("gfx{major}{minor:x}{stepping:x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_lanes_are_gpus_in_the_order_of_the_bus() {
        let folder = tempfile::tempdir().unwrap();
        for (at, properties) in [
            "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\ndomain 0\n",
            "simd_count 1216\ngfx_target_version 90402\nlocation_id 29952\ndomain 0\n",
            "simd_count 1216\ngfx_target_version 90010\nlocation_id 1288\ndomain 0\n",
            "simd_count 1024\ngfx_target_version 120500\nlocation_id 768\ndomain 1\n",
            "simd_count",
        ]
        .into_iter()
        .enumerate()
        {
            let node = folder.path().join(at.to_string());
            fs::create_dir(&node).unwrap();
            fs::write(node.join("properties"), properties).unwrap();
        }
        fs::create_dir(folder.path().join("empty")).unwrap();
        let found = gpus(folder.path());
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|node| (&*node.pci_address, &*node.architecture))
            .collect();
        let expected = [
            ("0000:05:01.0", "gfx90a"),
            ("0000:75:00.0", "gfx942"),
            ("0001:03:00.0", "gfx1250"),
        ];
        assert_eq!(found, expected);
        assert_eq!(gpus(Path::new("/no/such/folder")), []);
    }
}
