//! Words of messages.

/// A number with its noun: "1 text", "2 texts", "2 classes".
pub fn counted(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_and_several() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "text")), ["0 texts", "1 text", "2 texts"]);
        assert_eq!([1, 3].map(|n| counted(n, "class")), ["1 class", "3 classes"]);
    }
}
