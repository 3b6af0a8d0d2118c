//! Comments and documents keep to 120 columns. rustfmt limits the width of code and leaves comments as they are.

use crate::Outcome;
use crate::source::{Tree, code_only};

const WIDEST: usize = 120;

/// Checks that no line of a comment in `*.rs` and no line of `*.md` is wider than 120 columns. Tables, code blocks,
/// markers of tables of rows and lines without a space to break at, such as a long link, are exempt.
pub fn columns(tree: &Tree) -> Outcome {
    let mut problems = Vec::new();
    let mut files = 0;
    for file in &tree.files {
        let wide = match file.path.rsplit_once('.') {
            Some((_, "rs")) => too_wide(&comments(&file.text)),
            Some((_, "md")) => too_wide(&file.text.lines().map(str::to_owned).collect::<Vec<_>>()),
            _ => continue,
        };
        files += 1;
        let path = &file.path;
        problems.extend(
            wide.iter().map(|(n, width)| format!("{path}:{n}: {width} columns, the limit is {WIDEST}: break the line")),
        );
    }
    if problems.is_empty() { Ok(format!("{files} files, none above {WIDEST}")) } else { Err(problems) }
}

/// The lines that end in a comment, unchanged; other lines are empty. A `//` in a literal is no comment, unless a line
/// of the literal begins with it.
fn comments(text: &str) -> Vec<String> {
    let code = code_only(text);
    let pairs = text.lines().zip(code.lines());
    let comment = pairs.map(|(line, code)| {
        let after = code.trim_end().chars().count();
        let rest: String = line.chars().skip(after).collect();
        if rest.trim_start().starts_with("//") { line.to_owned() } else { String::new() }
    });
    comment.collect()
}

/// Number and width of each line that is too wide and could be broken.
fn too_wide(lines: &[String]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (n, line) in lines.iter().enumerate() {
        let body = line.trim_start().trim_start_matches(['/', '!']).trim();
        if body.starts_with("```") {
            in_code = !in_code;
        }
        let table = body.starts_with('|') && body.ends_with('|') || body.starts_with("<!-- rows: ");
        let width = line.chars().count();
        if width > WIDEST && !in_code && !table && breaks(body) {
            found.push((n + 1, width));
        }
    }
    found
}

/// Whether a line has a second word besides a list marker.
fn breaks(body: &str) -> bool {
    let words = body.split_whitespace();
    words.filter(|word| *word != "*" && *word != "-").count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::File;

    fn found(path: &str, text: &str) -> usize {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        let tree = Tree { files: vec![file] };
        columns(&tree).map_or_else(|problems| problems.len(), |_| 0)
    }

    #[test]
    fn a_line_of_121_columns_is_found_and_one_of_120_is_not() {
        // 2 + 29 · 4 columns, then the last word. A letter of two bytes is one column.
        let words = "äbc ".repeat(29);
        for (path, open) in [("a.md", "* "), ("a.rs", "//")] {
            let line = |end: &str| format!("{open}{words}{end}\n");
            assert_eq!(found(path, &line("de")), 0, "{path}");
            assert_eq!(found(path, &line("def")), 1, "{path}");
        }
        assert_eq!(found("a.json", &"äbc ".repeat(40)), 0);
    }

    #[test]
    fn comments_are_held_and_code_is_not() {
        let long = "word ".repeat(30);
        for comment in ["// ", "/// ", "    //! ", "f(); // "] {
            assert_eq!(found("a.rs", &format!("{comment}{long}\n")), 1, "{comment}");
        }
        for code in ["let a = \"// ", "    \"", "let a = \"//\";\"("] {
            assert_eq!(found("a.rs", &format!("{code}{long}\";\n")), 0, "{code}");
        }
    }

    #[test]
    fn tables_blocks_of_code_and_links_may_be_wide() {
        let long = "word ".repeat(30);
        let link = format!("https://{}", "a".repeat(130));
        for text in [
            format!("| {long} |"),
            format!("<!-- rows: {long}-->"),
            format!("```sh\n{long}\n```"),
            link.clone(),
            format!("* {link}"),
        ] {
            assert_eq!(found("a.md", &text), 0, "{text}");
            let comment: String = text.lines().map(|l| format!("    /// {l}\n")).collect();
            assert_eq!(found("a.rs", &comment), 0, "{comment}");
        }
        assert_eq!(found("a.md", &format!("```sh\na\n```\n{long}")), 1);
        assert_eq!(found("a.md", &format!("see {link}")), 1);
        assert_eq!(found("a.md", &format!("|x| < {long}")), 1);
    }
}
