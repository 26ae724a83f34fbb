//! How a call's texts are laid over the lanes of an executor.
//!
//! The fastest way to use several lanes is to give each of them texts of its own:
//! nobody waits for anybody. It needs enough texts; where there are too few, or one
//! is much longer than the rest, all lanes share every step of every layer instead.
//! Neither choice changes a vector: a row's arithmetic does not depend on it.

use std::ops::Range;

/// Tokens that go through the layers together on one lane: how often a weight is used
/// once it has been read. More of them read weights less often, and spill more
/// activations (five to nine kilobytes a token in MiniLM) from a core's own cache.
/// Measured with MiniLM on one core: 128 give 95 % of the speed of 256, 600 give 103 %.
const BLOCK_TOKENS: usize = 256;

/// How much longer than a perfect split texts of one's own may take before sharing
/// every step is the better choice.
const WORST_SPLIT: f64 = 1.2;

/// Texts as blocks, and who computes a block.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::model) struct Plan {
    /// Ranges of texts, in order, which together cover all of them.
    pub(in crate::model) blocks: Vec<Range<usize>>,
    /// Whether the lanes share each block, one block after the other, or take blocks
    /// of their own.
    pub(in crate::model) shared: bool,
}

impl Plan {
    /// Lays texts of `lengths` tokens over `lanes` lanes.
    pub(in crate::model) fn new(lengths: &[usize], lanes: usize) -> Plan {
        let total: usize = lengths.iter().sum();
        // A whole number of rounds, so that the last one keeps every lane busy.
        let round = BLOCK_TOKENS * lanes;
        let rounds = ((total + round / 2) / round).max(1);
        let own = cut(lengths, total.div_ceil(rounds * lanes));
        if lanes == 1
            || longest_lane(&own, lengths, lanes) <= WORST_SPLIT * total as f64 / lanes as f64
        {
            return Plan {
                blocks: own,
                shared: false,
            };
        }
        Plan {
            blocks: cut(lengths, BLOCK_TOKENS * lanes),
            shared: true,
        }
    }
}

/// Cuts texts into runs of about `tokens` tokens, at least one text each.
fn cut(lengths: &[usize], tokens: usize) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let (mut start, mut held) = (0, 0);
    for (text, length) in lengths.iter().enumerate() {
        // Whichever side of the mark is nearer: blocks come out even, not just bounded.
        if held > 0 && held + length / 2 > tokens {
            blocks.push(start..text);
            (start, held) = (text, 0);
        }
        held += length;
    }
    if start < lengths.len() {
        blocks.push(start..lengths.len());
    }
    blocks
}

/// Tokens on the busiest lane when each lane takes the next block as it becomes free.
fn longest_lane(blocks: &[Range<usize>], lengths: &[usize], lanes: usize) -> f64 {
    let mut loads = vec![0usize; lanes];
    for block in blocks {
        let tokens: usize = lengths[block.clone()].iter().sum();
        if let Some(load) = loads.iter_mut().min() {
            *load += tokens;
        }
    }
    loads.into_iter().max().unwrap_or(0) as f64
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use proptest::prelude::*;

    use super::Plan;

    proptest! {
        #[test]
        fn every_text_is_in_one_block_and_in_order(
            lengths in prop::collection::vec(2usize..512, 0..300),
            lanes in 1usize..20,
        ) {
            let plan = Plan::new(&lengths, lanes);
            let mut next = 0;
            for block in &plan.blocks {
                prop_assert_eq!(block.start, next);
                prop_assert!(block.end > block.start);
                next = block.end;
            }
            prop_assert_eq!(next, lengths.len());
        }
    }

    #[test]
    fn one_query_is_shared_and_many_short_texts_are_not() {
        assert!(Plan::new(&[8], 2).shared);
        assert!(Plan::new(&[500, 8], 2).shared);
        assert!(!Plan::new(&[8], 1).shared);
        let even = Plan::new(&[16; 32], 2);
        assert!(!even.shared);
        assert_eq!(even.blocks.len() % 2, 0);
    }
}
