//! Whether processes that have met are those of one run, and the sentence that says what is wrong.
//!
//! Every process judges the same facts by the same rules in the same order, so all come to the
//! same sentence.

use std::fmt::Write as _;

use super::member::Member;

/// As many processes are named in full; of more, only how many.
const NAMED: usize = 8;

/// What of the processes does not fit together; `None`: nothing.
pub(super) fn disagreement(met: &[&Member]) -> Option<String> {
    let mut met = met.to_vec();
    met.sort_by_key(|member| (member.index, &member.process));
    let mut wrong: Vec<String> = [
        differing(&met, "the version of uform", |member| {
            member.version.clone()
        }),
        differing(&met, "`hostDomainCount`", |member| member.count.to_string()),
        differing(&met, "the number of GPUs", |member| {
            member.devices.len().to_string()
        }),
        differing(&met, "`gpusPerMultimemDomain`", |member| {
            member.gpus_per_multimem_domain.to_string()
        }),
        differing(&met, "the class of the GPUs", classes),
    ]
    .into_iter()
    .flatten()
    .collect();
    wrong.extend(shared_indexes(&met));
    wrong.extend(shared_devices(&met));
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// The indexes below `count` that nobody of these has.
pub(super) fn missing(count: u32, met: &[&Member]) -> Vec<u32> {
    let mut here = vec![false; count as usize];
    for member in met {
        if let Some(here) = here.get_mut(member.index as usize) {
            *here = true;
        }
    }
    let indexes = (0..count).zip(here);
    indexes
        .filter(|(_, here)| !here)
        .map(|(index, _)| index)
        .collect()
}

/// Indexes in words: `index 3`, `indexes 0 to 4, 7`.
pub(super) fn indexes(indexes: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for index in indexes {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => ranges.push((*index, *index)),
        }
    }
    let words: Vec<String> = ranges
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first} to {last}"),
        })
        .collect();
    let noun = if indexes.len() == 1 {
        "index"
    } else {
        "indexes"
    };
    format!("{noun} {}", words.join(", "))
}

/// Processes in words.
pub(super) fn named(members: &[&Member]) -> String {
    let mut words = String::new();
    for (place, member) in members.iter().take(NAMED).enumerate() {
        let comma = if place == 0 { "" } else { ", " };
        // Writing to a text cannot fail.
        _ = write!(words, "{comma}{member}");
    }
    if members.len() > NAMED {
        _ = write!(words, " and {} more", members.len() - NAMED);
    }
    words
}

/// The classes of a process's devices; one, if they are of one kind.
fn classes(member: &Member) -> String {
    let mut words: Vec<&str> = member
        .devices
        .iter()
        .map(|device| device.gpu_class.as_str())
        .collect();
    words.dedup();
    words.join(" and ")
}

/// What has to be the same everywhere, and is not.
fn differing(met: &[&Member], what: &str, value: impl Fn(&Member) -> String) -> Option<String> {
    let mut values: Vec<(String, Vec<&Member>)> = Vec::new();
    for member in met {
        let own = value(member);
        match values.iter_mut().find(|(value, _)| *value == own) {
            Some((_, members)) => members.push(member),
            None => values.push((own, vec![member])),
        }
    }
    let says =
        |(value, members): &(String, Vec<&Member>)| format!("{value} for {}", named(members));
    (values.len() > 1).then(|| {
        let values: Vec<String> = values.iter().map(says).collect();
        format!("{what} is {}", values.join(", and "))
    })
}

/// Indexes that more than one process has. The processes are in the order of their indexes.
fn shared_indexes<'a>(met: &'a [&'a Member]) -> impl Iterator<Item = String> + 'a {
    let same = met.chunk_by(|one, next| one.index == next.index);
    same.filter(|same| same.len() > 1).map(|same| {
        format!(
            "`hostDomainIndex` {} is there {} times: {}",
            same[0].index,
            same.len(),
            named(same)
        )
    })
}

/// Devices that more than one process of a host has, or one has twice.
fn shared_devices(met: &[&Member]) -> Vec<String> {
    let mut users: Vec<(&str, &Member)> = Vec::new();
    for member in met {
        let uuids = member.devices.iter().flat_map(|device| &device.uuid);
        users.extend(uuids.map(|uuid| (uuid.as_str(), *member)));
    }
    users.sort_by_key(|(uuid, _)| *uuid);
    let mut wrong = Vec::new();
    for same in users.chunk_by(|one, next| one.0 == next.0) {
        let twice = same.iter().enumerate().any(|(place, (_, one))| {
            let others = same[..place].iter();
            others
                .map(|(_, other)| other)
                .any(|other| other.process.shares_host(&one.process))
        });
        if twice {
            let members: Vec<&Member> = same.iter().map(|(_, member)| *member).collect();
            wrong.push(format!(
                "the GPU {} is used by {}",
                same[0].0,
                named(&members)
            ));
        }
    }
    wrong
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::mesh::member::MemberDevice;
    use crate::mesh::process::Process;

    /// A process of a run of `count`, on a host of its own, with two devices.
    pub fn member(index: u32, count: u32) -> Member {
        let device = |number: u32| MemberDevice {
            uuid: Some(format!("GPU-{index}-{number}")),
            gpu_class: "nvidia-hopper".to_owned(),
        };
        Member {
            index,
            count,
            version: "1.2.3".to_owned(),
            devices: vec![device(0), device(1)],
            gpus_per_multimem_domain: 2,
            process: Process {
                host: format!("host{index}"),
                id: 100 + index,
                ..Process::default()
            },
            no_collectives: None,
        }
    }

    #[test]
    fn whatever_differs_is_named_with_who_says_what() {
        type Change = fn(&mut Member);
        let table: [(Change, &str); 8] = [
            (|_| (), ""),
            (
                |member| member.version = "1.2.4".to_owned(),
                "the version of uform is 1.2.3 for index 0 (host \"host0\", process 100), \
                 index 1 (host \"host1\", process 101), and 1.2.4 for index 2 (host \"host2\", \
                 process 102)",
            ),
            (
                |member| member.count = 4,
                "`hostDomainCount` is 3 for index 0 (host \"host0\", process 100), index 1 (host \
                 \"host1\", process 101), and 4 for index 2 (host \"host2\", process 102)",
            ),
            (
                |member| drop(member.devices.pop()),
                "the number of GPUs is 2 for index 0 (host \"host0\", process 100), index 1 (host \
                 \"host1\", process 101), and 1 for index 2 (host \"host2\", process 102)",
            ),
            (
                |member| member.gpus_per_multimem_domain = 6,
                "`gpusPerMultimemDomain` is 2 for index 0 (host \"host0\", process 100), index 1 \
                 (host \"host1\", process 101), and 6 for index 2 (host \"host2\", process 102)",
            ),
            (
                |member| member.devices[1].gpu_class = "nvidia-ada".to_owned(),
                "the class of the GPUs is nvidia-hopper for index 0 (host \"host0\", process \
                 100), index 1 (host \"host1\", process 101), and nvidia-hopper and nvidia-ada for \
                 index 2 (host \"host2\", process 102)",
            ),
            (
                |member| member.index = 1,
                "`hostDomainIndex` 1 is there 2 times: index 1 (host \"host1\", process 101), \
                 index 1 (host \"host2\", process 102)",
            ),
            (
                |member| {
                    member.process.host = "host0".to_owned();
                    member.devices[1].uuid = Some("GPU-0-1".to_owned());
                },
                "the GPU GPU-0-1 is used by index 0 (host \"host0\", process 100), index 2 (host \
                 \"host0\", process 102)",
            ),
        ];
        for (change, expected) in table {
            let mut members = [member(0, 3), member(1, 3), member(2, 3)];
            change(&mut members[2]);
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                let met = order.map(|place| &members[place]);
                assert_eq!(disagreement(&met).unwrap_or_default(), expected);
            }
        }
    }

    #[test]
    fn one_uuid_on_two_hosts_is_two_devices() {
        let mut other = member(1, 2);
        other.devices[0].uuid = Some("GPU-0-0".to_owned());
        assert_eq!(disagreement(&[&member(0, 2), &other]), None);
        let mut twice = member(0, 1);
        twice.devices[0].uuid = Some("GPU-0-1".to_owned());
        assert!(disagreement(&[&twice]).unwrap().contains("GPU-0-1"));
    }

    #[test]
    fn words_for_many_stay_short() {
        assert_eq!(indexes(&[3]), "index 3");
        assert_eq!(indexes(&[0, 1, 2, 5, 7, 8]), "indexes 0 to 2, 5, 7 to 8");
        let many: Vec<Member> = (0..20).map(|index| member(index, 20)).collect();
        let many: Vec<&Member> = many.iter().collect();
        assert!(named(&many).ends_with("process 107) and 12 more"));
        assert_eq!(missing(4, &[&member(2, 4), &member(9, 4)]), [0, 1, 3]);
    }
}
