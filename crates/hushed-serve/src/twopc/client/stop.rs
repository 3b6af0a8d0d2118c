//! Stop strings in a text that arrives piece by piece.

/// Looks for stop strings, and holds back text that may begin one.
pub(super) struct Stops {
    stops: Vec<String>,
    held: String,
}

impl Stops {
    /// Empty strings stop nothing.
    pub(super) fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|s| !s.is_empty()).cloned();
        Self { stops: stops.collect(), held: String::new() }
    }

    /// The text that is certain after this piece, and whether it ends there. With `last` nothing is held back.
    pub(super) fn push(&mut self, piece: &str, last: bool) -> (String, bool) {
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|s| self.held.find(s)).min();
        if let Some(first) = first {
            self.held.truncate(first);
            return (std::mem::take(&mut self.held), true);
        }
        let open = match last {
            true => 0,
            false => self.open(),
        };
        let rest = self.held.split_off(self.held.len() - open);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Bytes at the end that begin a stop string.
    fn open(&self) -> usize {
        let begins = |s: &String| {
            let cuts = s.char_indices().map(|(at, _)| at).skip(1);
            let found = cuts.filter(|&at| s.get(..at).is_some_and(|b| self.held.ends_with(b)));
            found.max().unwrap_or(0)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Stops;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|s| (*s).to_owned()).collect();
        let mut stops = Stops::new(&stops);
        let mut out = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            let (text, stopped) = stops.push(piece, i + 1 == pieces.len());
            out.push(text);
            if stopped {
                return (out, true);
            }
        }
        (out, false)
    }

    #[test]
    fn what_may_begin_a_stop_string_waits() {
        let (out, stopped) = run(&["\n\n", "END"], &["a\n", "b E", "N", "Dc"]);
        assert_eq!(out, ["a", "\nb ", "", ""]);
        assert!(stopped);
        let (out, stopped) = run(&["END"], &["a EN", "d", " E"]);
        assert_eq!(out, ["a ", "ENd", " E"]);
        assert!(!stopped);
        assert_eq!(run(&["é"], &["caf", "é!"]), (vec!["caf".into(), String::new()], true));
        assert_eq!(run(&["", "x"], &["a"]), (vec!["a".into()], false));
        // The first of several.
        assert_eq!(run(&["c", "b"], &["abc"]), (vec!["a".into()], true));
    }
}
