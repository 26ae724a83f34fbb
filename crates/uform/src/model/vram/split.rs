//! Which device computes which texts, and which of them go through the layers together.
//!
//! Each call is cut into runs of neighbouring texts of about the same number of tokens, one a
//! device at most: how depends on its own texts alone, so that the parts of its results are the same in
//! any company. The runs of a batch's calls then go to the devices with least to do.

use std::ops::Range;

/// Tokens that go through the layers together on a device, where scratch allows: enough to fill it.
/// Scratch grows with them, some eight kilobytes a token in MiniLM.
pub(super) const BLOCK_TOKENS: usize = 16_384;

/// Texts of one call that a device computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Which of the devices.
    pub(super) device: usize,
    /// Which texts of the batch.
    pub(super) texts: Range<usize>,
}

/// Gives the texts of each call, a range of the batch, to devices: the runs of each, in the order of its texts.
/// `lengths` are the tokens of all texts.
pub(super) fn split(calls: &[Range<usize>], lengths: &[usize], devices: usize) -> Vec<Vec<Run>> {
    let mut loads = vec![0usize; devices];
    let deal = |texts: &Range<usize>| {
        let runs = cut(texts.clone(), lengths, devices);
        let mut idle: Vec<_> = (0..devices).collect();
        idle.sort_by_key(|device| loads[*device]);
        idle.truncate(runs.len());
        // In the order of the devices, of which a call alone has the first.
        idle.sort_unstable();
        let dealt = idle.into_iter().zip(runs);
        let dealt = dealt.map(|(device, texts)| {
            loads[device] += texts
                .clone()
                .map(|text| weight(lengths[text]))
                .sum::<usize>();
            Run { device, texts }
        });
        dealt.collect()
    };
    calls.iter().map(deal).collect()
}

/// A text without tokens is work, too.
fn weight(length: usize) -> usize {
    length.max(1)
}

/// Cuts texts into runs, at most so many: each goes where its middle falls.
fn cut(texts: Range<usize>, lengths: &[usize], most: usize) -> Vec<Range<usize>> {
    let total: usize = texts.clone().map(|text| weight(lengths[text])).sum();
    let mut runs: Vec<Range<usize>> = Vec::new();
    let (mut before, mut last) = (0, None);
    for text in texts {
        let weight = weight(lengths[text]);
        // In halves of tokens.
        let place = (2 * before + weight) * most / (2 * total);
        before += weight;
        match runs.last_mut() {
            Some(run) if last == Some(place) => run.end = text + 1,
            _ => runs.push(text..text + 1),
        }
        last = Some(place);
    }
    runs
}

/// Cuts texts of these lengths into blocks of at most so many tokens and texts, but for a text that is
/// longer alone.
pub(super) fn blocks(lengths: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let mut tokens = 0;
    for (text, length) in lengths.iter().enumerate() {
        match blocks.last_mut() {
            Some(block) if tokens + length <= most && block.len() < most => {
                block.end = text + 1;
                tokens += length;
            }
            _ => {
                blocks.push(text..text + 1);
                tokens = *length;
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::{Run, blocks, cut, split};
    use proptest::prelude::*;

    #[test]
    fn as_many_alike_texts_as_devices_have_one_each() {
        for devices in 1..9 {
            for times in 1..4 {
                let lengths = vec![7; devices * times];
                let runs = cut(0..lengths.len(), &lengths, devices);
                let expected: Vec<_> = (0..devices)
                    .map(|at| at * times..(at + 1) * times)
                    .collect();
                assert_eq!(runs, expected);
            }
        }
    }

    #[test]
    fn calls_of_one_text_go_by_turns() {
        let calls = [0..1, 1..2, 2..3, 3..4];
        let runs = split(&calls, &[5, 5, 5, 5], 2);
        let devices: Vec<_> = runs.iter().map(|runs| runs[0].device).collect();
        assert_eq!(devices, [0, 1, 0, 1]);
        let calls = [0..3, 3..3];
        let alone = split(&calls[..1], &[1, 1, 9], 2);
        let expected = [(0, 0..2), (1, 2..3)].map(|(device, texts)| Run { device, texts });
        assert_eq!(alone[0], expected);
        assert_eq!(split(&calls[1..], &[1, 1, 9], 2), [vec![]]);
    }

    proptest! {
        #[test]
        fn every_text_is_in_one_run_and_one_block(
            lengths in prop::collection::vec(0usize..600, 0..200),
            devices in 1usize..9,
            most in 1usize..2000,
        ) {
            let runs = cut(0..lengths.len(), &lengths, devices);
            prop_assert!(runs.len() <= devices);
            let total: usize = lengths.iter().map(|length| (*length).max(1)).sum();
            let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
            for run in &runs {
                let tokens: usize = lengths[run.clone()].iter().map(|length| (*length).max(1)).sum();
                prop_assert!(tokens <= total / devices + 1 + longest);
            }
            for ranges in [runs, blocks(&lengths, most)] {
                let mut next = 0;
                for range in &ranges {
                    prop_assert_eq!(range.start, next);
                    prop_assert!(range.end > range.start);
                    next = range.end;
                }
                prop_assert_eq!(next, lengths.len());
            }
            for block in blocks(&lengths, most) {
                let tokens: usize = lengths[block.clone()].iter().sum();
                prop_assert!(block.len() == 1 || (tokens <= most && block.len() <= most));
            }
        }
    }
}
