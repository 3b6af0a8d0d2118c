//! The numbers in the changelog that both sides must share are those of the code.

use crate::Outcome;
use crate::source::Tree;

/// What the changelog's table calls a number, and the file and name of its constant.
const NUMBERS: [(&str, &str, &str); 3] = [
    ("protocol of `2pc`", "crates/hushed-mpc/src/establish.rs", "PROTOCOL_VERSION"),
    ("control messages", "crates/hushed-serve/src/session/codec.rs", "VERSION"),
    ("run manifest of `fhe`", "crates/hushed-fhe/src/plan/public_plan/error.rs", "PLAN_VERSION"),
];

/// Checks that the changelog has each number once, as the code has it.
pub fn shared(tree: &Tree) -> Outcome {
    let text = |path: &str| tree.files.iter().find(|file| file.path == path).map_or("", |file| &*file.text);
    let log = text("CHANGELOG.md");
    let problems: Vec<String> = NUMBERS
        .iter()
        .filter_map(|(what, path, name)| {
            let said: Vec<&str> = log.lines().filter_map(|line| row(line, what)).collect();
            let is = text(path).lines().find_map(|line| constant(line, name)).unwrap_or("not found");
            (said != [is]).then(|| format!("CHANGELOG.md: {what} is {is} in {path}; the table says {said:?}"))
        })
        .collect();
    if problems.is_empty() { Ok(format!("{} as in the code", NUMBERS.len())) } else { Err(problems) }
}

/// The second column of the row of `what`.
fn row<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    let (first, second) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
    (first == what).then_some(second)
}

fn constant<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = line.strip_prefix("const ")?.strip_prefix(name)?.strip_prefix(": ")?;
    rest.split_once(" = ")?.1.strip_suffix(';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_and_second_rows_are_found() {
        let check = |rows: &str| {
            let files = NUMBERS.map(|(_, path, name)| (path, format!("pub const {name}: u32 = 7;\n")));
            let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            files.push(("CHANGELOG.md", rows));
            shared(&Tree::of(&files)).is_ok()
        };
        let row = |what: &str, number: u32| format!("| {what} | {number} |\n");
        let good: String = NUMBERS.iter().map(|(what, ..)| row(what, 7)).collect();
        assert!(check(&good));
        assert!(!check(&good.replacen('7', "6", 1)));
        assert!(!check(&format!("{good}{}", row("control messages", 6))));
        assert!(!check(""));
    }
}
