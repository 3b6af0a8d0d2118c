//! The files of the repository, and Rust source with its comments and literals blanked.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// A text file: its path from the root with forward slashes, and its content.
pub struct File {
    pub path: String,
    pub text: String,
}

/// Every text file under the root that git would not ignore.
pub struct Tree {
    pub files: Vec<File>,
}

/// Folders that hold build output, downloads or another project's code.
/// The same list as `.gitignore`, so that the checks work without git.
const SKIPPED: [&str; 9] = ["target", ".git", ".models", ".venv", ".python", "dist", "out", "corpus", "artifacts"];
const TEXT: [&str; 9] = ["rs", "toml", "md", "py", "sh", "txt", "tsv", "yml", "json"];
/// A larger file is data, not something that a person wrote.
const LARGEST_TEXT: u64 = 4 << 20;

impl Tree {
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        Tree { files: files.iter().map(file).collect() }
    }

    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let kind = entry.file_type()?;
                if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                    folders.push(entry.path());
                } else if kind.is_file() && is_text(&name) && entry.metadata()?.len() < LARGEST_TEXT {
                    // A file that is not UTF-8 contains nothing that the checks look for.
                    if let Ok(text) = fs::read_to_string(entry.path()) {
                        files.push(File { path: relative(root, entry.path()), text });
                    }
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|f| f.path.ends_with(".rs"))
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }
}

fn is_text(name: &str) -> bool {
    name == "Makefile" || name.rsplit_once('.').is_some_and(|(_, end)| TEXT.contains(&end))
}

fn relative(root: &Path, path: PathBuf) -> String {
    path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/")
}

/// Rust source with comments, strings and character literals replaced by spaces. Line breaks stay, so that line numbers
/// hold. Handles nested block comments and raw strings.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match at(i) {
            '/' if at(i + 1) == '/' => line_end(&chars, i),
            '/' if at(i + 1) == '*' => block_comment_end(&chars, i),
            '"' => string_end(&chars, i),
            'r' if !is_word(chars.get(i.wrapping_sub(1))) => raw_string_end(&chars, i),
            '\'' => char_literal_end(&chars, i),
            _ => i,
        };
        if end == i {
            out.push(at(i));
            i += 1;
        } else {
            let gone = chars.get(i..end).unwrap_or_default();
            out.extend(gone.iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

fn is_word(c: Option<&char>) -> bool {
    // `br"…"` is a raw string too: its `b` does not make the `r` part of a name.
    c.is_some_and(|&c| (c.is_alphanumeric() || c == '_') && c != 'b')
}

fn line_end(chars: &[char], from: usize) -> usize {
    (from..chars.len()).find(|&i| chars.get(i) == Some(&'\n')).unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let mut depth = 0usize;
    let mut i = from;
    while i < chars.len() {
        match (chars.get(i), chars.get(i + 1)) {
            (Some('/'), Some('*')) => (depth, i) = (depth + 1, i + 2),
            (Some('*'), Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut i = from + 1;
    while i < chars.len() {
        match chars.get(i) {
            Some('\\') => i += 2,
            Some('"') => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// End of the `r"…"` or `r#"…"#` that begins at `from`; `from` itself if there is none (a raw identifier, a name).
fn raw_string_end(chars: &[char], from: usize) -> usize {
    let hashes = chars.iter().skip(from + 1).take_while(|&&c| c == '#').count();
    let open = from + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return from;
    }
    let closes = |i: usize| chars.get(i) == Some(&'"') && (1..=hashes).all(|k| chars.get(i + k) == Some(&'#'));
    (open + 1..chars.len()).find(|&i| closes(i)).map_or(chars.len(), |i| i + 1 + hashes)
}

/// End of the character literal at `from`; `from` itself if the quote begins a lifetime.
fn char_literal_end(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => {
            let close = (from + 3..chars.len()).find(|&i| chars.get(i) == Some(&'\''));
            close.map_or(chars.len(), |i| i + 1)
        }
        (Some(_), Some('\'')) => from + 3,
        _ => from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str) -> String {
        code_only(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        assert_eq!(squeezed("a // b\nc"), "a c");
        assert_eq!(squeezed("a /* b /* c */ d */ e"), "a e");
        assert_eq!(squeezed(r#"a("b \" c") d"#), "a( ) d");
        assert_eq!(squeezed("a(r#\"b \" c\"#) d"), "a( ) d");
        assert_eq!(squeezed("a(br\"b\\\") d"), "a(b ) d");
        assert_eq!(squeezed("'\"' x '\\'' y '\\u{1F}' z"), "x y z");
        assert_eq!(squeezed("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(squeezed("for r in r#match {}"), "for r in r#match {}");
    }

    #[test]
    fn line_numbers_hold() {
        let text = "a\n/* b\nc */\n\"d\ne\"\nf";
        assert_eq!(code_only(text).lines().count(), text.lines().count());
        assert_eq!(code_only(text).lines().last(), Some("f"));
    }

    #[test]
    fn an_unclosed_literal_runs_to_the_end() {
        assert_eq!(squeezed("a \"b"), "a");
        assert_eq!(squeezed("a /* b"), "a");
        assert_eq!(squeezed("a r#\"b\""), "a");
    }
}
