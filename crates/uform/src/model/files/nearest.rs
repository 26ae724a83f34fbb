//! Which of the names that exist a wrong name was probably meant to be.

/// More names than this are not all compared: only a message depends on it.
const COMPARED: usize = 4096;

/// A name of more bytes than this is nobody's.
const LONGEST: usize = 256;

/// Up to `most` of `names`, the ones fewest edits away from `wanted` first.
pub fn nearest<'a>(
    wanted: &str,
    names: impl Iterator<Item = &'a str>,
    most: usize,
) -> Vec<&'a str> {
    let wanted = &wanted.as_bytes()[..wanted.len().min(LONGEST)];
    let mut ranked: Vec<_> = names
        .take(COMPARED)
        .filter(|name| name.len() <= LONGEST)
        .map(|name| (edits(wanted, name.as_bytes()), name))
        .collect();
    ranked.sort_unstable();
    ranked
        .into_iter()
        .take(most)
        .map(|(_, name)| name)
        .collect()
}

/// The Levenshtein distance: insertions, deletions and substitutions of one byte.
fn edits(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, left) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (column, right) in to.iter().enumerate() {
            let substituted = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (from, to, distance) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("same", "same", 0),
        ] {
            assert_eq!(
                edits(from.as_bytes(), to.as_bytes()),
                distance,
                "{from} {to}"
            );
            assert_eq!(
                edits(to.as_bytes(), from.as_bytes()),
                distance,
                "{to} {from}"
            );
        }
    }

    #[test]
    fn a_name_without_end_is_not_compared_to_its_end() {
        let names = Vec::from_iter((0..COMPARED).map(|name| format!("{name:0200}")));
        let wanted = "1".repeat(1 << 24);
        assert_eq!(
            nearest(&wanted, names.iter().map(String::as_str), 2).len(),
            2
        );
    }

    #[test]
    fn the_nearest_come_first() {
        let names = ["pooler.bias", "embeddings.weight", "pooler.weight"];
        assert_eq!(
            nearest("pooler.weights", names.into_iter(), 2),
            ["pooler.weight", "pooler.bias"]
        );
    }
}
