//! What a caller gave, as a message quotes it: whole while it is short, else its beginning and how much
//! more there is. A caller that passes a million ids gets one line.

use std::fmt::{self, Debug, Display};

/// The most items of a list that are quoted.
const MOST_ITEMS: usize = 32;

/// The most characters of a text that are quoted.
const MOST_CHARACTERS: usize = 100;

/// A list as a message quotes it, such as `[0, 1]`; a long one ends with how many more there are.
pub fn list<T: Debug>(items: &[T]) -> impl Display + '_ {
    fmt::from_fn(move |f| {
        let (quoted, more) = items.split_at(items.len().min(MOST_ITEMS));
        if more.is_empty() {
            return write!(f, "{quoted:?}");
        }
        f.write_str("[")?;
        for item in quoted {
            write!(f, "{item:?}, ")?;
        }
        write!(f, "… ({} more)]", more.len())
    })
}

/// A text as a message quotes it, such as `"cls"`; a long one ends with how many more bytes it has.
pub fn text(text: &str) -> impl Debug + Display + '_ {
    fmt::from_fn(move |f| match text.char_indices().nth(MOST_CHARACTERS) {
        None => write!(f, "{text:?}"),
        Some((cut, _)) => write!(f, "{:?}… ({} more bytes)", &text[..cut], text.len() - cut),
    })
}

/// Names one after the other, each as [`text`] quotes it.
pub fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut all = names.into_iter();
    let quoted: Vec<_> = all.by_ref().take(MOST_ITEMS).map(text).collect();
    let quoted: Vec<_> = quoted.iter().map(ToString::to_string).collect();
    match all.count() {
        0 => quoted.join(", "),
        more => format!("{}, … ({more} more)", quoted.join(", ")),
    }
}

/// A message of at most so many bytes and a few: without its middle, where it is longer. What is wrong stands at
/// the beginning, and the way out at the end.
pub(crate) fn without_middle(message: String, most: usize) -> String {
    if message.len() <= most {
        return message;
    }
    let head = message.floor_char_boundary(most / 4 * 3);
    let tail = message.ceil_char_boundary(message.len() - most / 4);
    let (before, after) = (&message[..head], &message[tail..]);
    format!("{before}… ({} more bytes) …{after}", tail - head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_quoted_whole() {
        assert_eq!(list(&[3, 1]).to_string(), "[3, 1]");
        assert_eq!(list::<u32>(&[]).to_string(), "[]");
        assert_eq!(text("a\0\"b\"").to_string(), r#""a\0\"b\"""#);
        assert_eq!(names(["query", "a b"]), r#""query", "a b""#);
        let all: Vec<_> = (0..MOST_ITEMS).collect();
        assert_eq!(list(&all).to_string(), format!("{all:?}"));
        assert_eq!(without_middle("message".into(), 7), "message");
    }

    #[test]
    fn what_is_long_is_cut_and_counted() {
        let ids: Vec<u32> = (0..1_000_000).collect();
        let quoted = list(&ids).to_string();
        assert!(quoted.starts_with("[0, 1, 2, "), "{quoted}");
        assert!(quoted.ends_with("31, … (999968 more)]"), "{quoted}");
        let quoted = text(&"é".repeat(1 << 20)).to_string();
        assert!(quoted.len() < 250, "{quoted}");
        assert!(quoted.ends_with("é\"… (2096952 more bytes)"), "{quoted}");
        let many: Vec<String> = (0..50).map(|name| format!("n{name}")).collect();
        let quoted = names(many.iter().map(String::as_str));
        assert!(quoted.ends_with("\"n31\", … (18 more)"), "{quoted}");
        // Wherever the cuts fall within the characters.
        for shift in 0..3 {
            let message = format!("{}{}out", "a".repeat(shift), "€".repeat(100_000));
            let cut = without_middle(message, 1000);
            assert!(cut.len() < 1040 && cut.ends_with("€out"), "{cut}");
        }
    }
}
