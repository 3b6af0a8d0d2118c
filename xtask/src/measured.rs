//! Tables of the documents that are printed from measured rows: `cargo xtask measured` writes them, `check` compares.
//!
//! A file `docs/measured/*.jsonl` has one figure a line. A page names what it shows, and the table stands below:
//!
//! ```text
//! <!-- rows: FILE TABLE -->
//! <!-- end of rows -->
//! ```
//!
//! `FILE TABLE: FIGURE | FIGURE` shows these columns only, in this order. Where the figures of a table come from is
//! printed below it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::source::Tree;

const OPEN: &str = "<!-- rows: ";
const CLOSE: &str = "<!-- end of rows -->";
const WIDTH: usize = 120;
/// What a field says that nobody wrote down; it is printed with the name of the field.
const UNKNOWN: &str = "not recorded";
/// Between the parts of a source, some of which are empty.
const BETWEEN: &str = "\u{1f}";
/// How a figure came about. `planned` is what `hushed plan` computes, `stated` what another system's authors say.
const KINDS: [&str; 5] = ["measured", "simulated", "extrapolated", "planned", "stated"];
/// The fields that say where a figure comes from, in the order in which they are printed.
const SOURCE: [&str; 6] = ["machine", "kernels", "parameters", "commit", "kind", "beside"];

/// One figure: a cell of a table.
struct Row {
    table: String,
    what: String,
    figure: String,
    value: String,
    unit: String,
    source: String,
}

/// Compares every table that a page prints from rows with the rows.
pub fn check(tree: &Tree, root: &Path) -> Outcome {
    let mut tables = 0;
    let problems: Vec<String> = pages(tree, root)
        .filter_map(|(path, text, printed)| match printed {
            Ok((new, count)) => {
                tables += count;
                (new != text).then(|| format!("{path}: a table differs from its rows: cargo xtask measured"))
            }
            Err(problem) => Some(format!("{path}: {problem}")),
        })
        .collect();
    if problems.is_empty() { Ok(format!("{tables} tables as their rows")) } else { Err(problems) }
}

/// Writes the tables into the pages.
pub fn write(root: &Path) -> Outcome {
    let tree = Tree::read(root).map_err(|error| vec![error.to_string()])?;
    let mut problems = Vec::new();
    for (path, text, printed) in pages(&tree, root) {
        let written = printed.and_then(|(new, _)| {
            if new == text { Ok(()) } else { fs::write(root.join(path), new).map_err(|error| error.to_string()) }
        });
        problems.extend(written.err().map(|problem| format!("{path}: {problem}")));
    }
    if problems.is_empty() { Ok("the tables of all pages".to_owned()) } else { Err(problems) }
}

/// Pages with tables of rows: path, text, and the text with its tables printed anew and their number.
fn pages<'a>(
    tree: &'a Tree,
    root: &'a Path,
) -> impl Iterator<Item = (&'a str, &'a str, Result<(String, usize), String>)> {
    let documents = tree.files.iter().filter(|f| f.path.starts_with("docs/") && f.path.ends_with(".md"));
    let read = move |name: &str| fs::read_to_string(root.join("docs/measured").join(name)).map_err(|e| e.to_string());
    documents
        .filter(|f| f.text.lines().any(|line| line.starts_with(OPEN)))
        .map(move |f| (f.path.as_str(), f.text.as_str(), page(&f.text, read)))
}

/// A page with its tables printed from the files that `read` gives, and how many there are.
fn page(text: &str, read: impl Fn(&str) -> Result<String, String>) -> Result<(String, usize), String> {
    let mut out = String::new();
    let mut tables = 0;
    let mut files: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out += line;
        out.push('\n');
        let Some(wanted) = line.strip_prefix(OPEN).and_then(|l| l.strip_suffix(" -->")) else { continue };
        if !lines.any(|line| line == CLOSE) {
            return Err(format!("`{line}` without `{CLOSE}`"));
        }
        let (from, figures) = wanted.split_once(": ").unwrap_or((wanted, ""));
        let (file, name) = from.split_once(' ').ok_or(format!("`{line}` needs a file and a table"))?;
        if !files.contains_key(file) {
            files.insert(file, rows(&read(file)?).map_err(|problem| format!("{file}: {problem}"))?);
        }
        let chosen: Vec<&str> = figures.split(" | ").filter(|f| !f.is_empty()).collect();
        let table: Vec<&Row> = files
            .get(file)
            .into_iter()
            .flatten()
            .filter(|row| row.table == name && (chosen.is_empty() || chosen.contains(&row.figure.as_str())))
            .collect();
        if let Some(missing) = chosen.iter().find(|f| !table.iter().any(|row| row.figure == **f)) {
            return Err(format!("{file}: no figure `{missing}` in table `{name}`"));
        }
        out += &print(&table, &chosen).map_err(|problem| format!("{file}, table `{name}`: {problem}"))?;
        out += CLOSE;
        out.push('\n');
        tables += 1;
    }
    Ok((out, tables))
}

/// The rows of a file.
fn rows(text: &str) -> Result<Vec<Row>, String> {
    let parsed = text.lines().enumerate().map(|(n, line)| {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("line {}: {error}", n + 1))?;
        row(&value).map_err(|problem| format!("line {}: {problem}", n + 1))
    });
    parsed.collect()
}

fn row(json: &Value) -> Result<Row, String> {
    let text = |key: &str| {
        json.get(key).and_then(Value::as_str).map(str::to_owned).ok_or(format!("the row lacks `{key}`, a text"))
    };
    let value = match json.get("value") {
        Some(Value::Number(number)) => printed(number.as_f64().ok_or("a number that is none")?),
        Some(Value::String(words)) => words.clone(),
        _ => return Err("the row lacks `value`, a number or a text".to_owned()),
    };
    let kind = text("kind")?;
    if !KINDS.contains(&kind.as_str()) {
        return Err(format!("`kind` is {kind}, not one of {}", KINDS.join(", ")));
    }
    let mut source = Vec::new();
    for key in SOURCE {
        let said = if key == "beside" && json.get(key).is_none() { String::new() } else { text(key)? };
        source.push(if said == UNKNOWN { format!("{key} {said}") } else { said });
    }
    let source = source.join(BETWEEN);
    Ok(Row { table: text("table")?, what: text("what")?, figure: text("figure")?, value, unit: text("unit")?, source })
}

/// A number as the documents write it: thousands with commas, small ones as a power of ten.
fn printed(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 {
        let scientific = format!("{value:e}");
        let (digits, power) = scientific.split_once("e-").unwrap_or((&scientific, "0"));
        return format!("{digits}·10^−{power}");
    }
    let plain = value.to_string();
    let (whole, rest) = plain.find('.').map_or((plain.as_str(), ""), |dot| plain.split_at(dot));
    let mut grouped = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// The distinct texts of an iterator in the order in which they come.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}

/// A table and where its figures come from. One source is a line below it; with several, a letter marks the column, the
/// line, or else each cell. Columns are those that are chosen, in that order, or all in the order of the rows.
fn print(table: &[&Row], chosen: &[&str]) -> Result<String, String> {
    let mut cells = BTreeMap::new();
    for row in table {
        if cells.insert((row.what.as_str(), row.figure.as_str()), *row).is_some() {
            return Err(format!("`{}` of `{}` twice", row.figure, row.what));
        }
    }
    if table.is_empty() {
        return Err("no rows".to_owned());
    }
    let lines = distinct(table.iter().map(|row| row.what.as_str()));
    let all = distinct(table.iter().map(|row| row.figure.as_str()));
    let columns = if chosen.is_empty() { all } else { chosen.to_vec() };
    let sources = distinct(table.iter().map(|row| row.source.as_str()));
    let letter = |source: &str| {
        let at = sources.iter().position(|s| *s == source).unwrap_or_default();
        char::from(b'a' + u8::try_from(at).unwrap_or(25).min(25))
    };
    if sources.len() > 26 {
        return Err(format!("{} sources: split the table", sources.len()));
    }
    let single = |of: &dyn Fn(&Row) -> bool| {
        let found = distinct(table.iter().filter(|row| of(row)).map(|row| row.source.as_str()));
        if let [one] = found.as_slice() { Some(letter(one)) } else { None }
    };
    let of_column: Vec<Option<char>> =
        columns.iter().map(|column| single(&|row: &Row| row.figure == *column)).collect();
    let of_line: Vec<Option<char>> = lines.iter().map(|line| single(&|row: &Row| row.what == *line)).collect();
    let several = sources.len() > 1;
    let by_column = several && of_column.iter().all(Option::is_some);
    let by_line = several && !by_column && of_line.iter().all(Option::is_some);
    let by_cell = several && !by_column && !by_line;

    let mut head = String::from("| |");
    let mut units = Vec::new();
    for (column, mark) in columns.iter().zip(&of_column) {
        let used = distinct(table.iter().filter(|row| row.figure == *column).map(|row| row.unit.as_str()));
        let unit = if let [one] = used.as_slice() { Some(*one) } else { None };
        let named = unit.filter(|unit| !unit.is_empty()).map(|unit| format!(", {unit}")).unwrap_or_default();
        let mark = mark.filter(|_| by_column).map(|mark| format!(" ({mark})")).unwrap_or_default();
        head += &format!(" {column}{named}{mark} |");
        units.push(unit);
    }
    head += if by_line { " from |\n" } else { "\n" };
    let mut out = head + "|" + &"---|".repeat(columns.len() + 1 + usize::from(by_line)) + "\n";
    for (line, mark) in lines.iter().zip(&of_line) {
        out += &format!("| {line} |");
        for (column, unit) in columns.iter().zip(&units) {
            let cell = cells.get(&(*line, *column)).map(|row| {
                let unit =
                    if unit.is_none() && !row.unit.is_empty() { format!(" {}", row.unit) } else { String::new() };
                let mark = if by_cell { format!(" ({})", letter(&row.source)) } else { String::new() };
                format!(" {}{unit}{mark}", row.value)
            });
            out += &format!("{} |", cell.unwrap_or_default());
        }
        out += &mark.filter(|_| by_line).map(|mark| format!(" {mark} |")).unwrap_or_default();
        out.push('\n');
    }
    out.push('\n');
    out += &origins(&sources);
    Ok(out)
}

/// Lines that say where figures come from: what all sources share, then the rest of each.
fn origins(sources: &[&str]) -> String {
    let parts: Vec<Vec<&str>> = sources.iter().map(|source| source.split(BETWEEN).collect()).collect();
    let shared = |at: usize| parts.iter().all(|p| p.get(at) == parts.first().and_then(|first| first.get(at)));
    let said = |of: &[&str], wanted: bool| {
        let some = of.iter().enumerate().filter(|(at, part)| shared(*at) == wanted && !part.is_empty());
        some.map(|(_, part)| *part).collect::<Vec<_>>().join("; ")
    };
    let all = parts.first().map(|first| said(first, true)).unwrap_or_default();
    let mut out = if all.is_empty() { String::new() } else { wrapped(&format!("{all}.")) };
    if parts.len() > 1 {
        let each = parts.iter().zip('a'..).map(|(part, letter)| format!("{letter}: {}.", said(part, false)));
        out += &wrapped(&each.collect::<Vec<_>>().join(" "));
    }
    out
}

/// The text in lines of at most [`WIDTH`] columns.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out += &line;
            out.push('\n');
            line = word.to_owned();
        } else if line.is_empty() {
            line = word.to_owned();
        } else {
            line = format!("{line} {word}");
        }
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"table":"t","what":"sum","figure":"time","value":1234.5,"unit":"s","machine":"a machine","kernels":"portable","parameters":"n = 1","commit":"0ba6c8b","kind":"measured"}"#;
    const PAGE: &str = "# A\n\n<!-- rows: f.jsonl t -->\n<!-- end of rows -->\nafter\n";

    fn of(rows: &str) -> Result<String, String> {
        page(PAGE, |_| Ok(rows.to_owned())).map(|(text, _)| text)
    }

    #[test]
    fn a_table_is_printed_with_its_source_and_stays_as_it_is() {
        let text = of(ROW).unwrap();
        let table = "| | time, s |\n|---|---|\n| sum | 1,234.5 |\n\na machine; portable; n = 1; 0ba6c8b; measured.\n";
        assert!(text.contains(table), "{text}");
        assert!(text.ends_with("<!-- end of rows -->\nafter\n"));
        assert_eq!(page(&text, |_| Ok(ROW.to_owned())).unwrap(), (text.clone(), 1));
        assert_ne!(
            page(&text.replace("1,234.5", "1,234.6"), |_| Ok(ROW.to_owned())).unwrap().0,
            text.replace("1,234.5", "1,234.6")
        );
    }

    #[test]
    fn several_sources_mark_the_column_the_line_or_the_cell() {
        let other = |what: &str, figure: &str, kind: &str| {
            let row = ROW.replace("\"sum\"", &format!("\"{what}\"")).replace("\"time\"", &format!("\"{figure}\""));
            row.replace("\"measured\"", &format!("\"{kind}\""))
        };
        let text = of(&[ROW.to_owned(), other("sum", "goal", "planned")].join("\n")).unwrap();
        assert!(text.contains("| | time, s (a) | goal, s (b) |"), "{text}");
        assert!(text.contains("\na machine; portable; n = 1; 0ba6c8b.\na: measured. b: planned.\n"), "{text}");
        let text = of(&[ROW.to_owned(), other("mean", "time", "planned")].join("\n")).unwrap();
        assert!(text.contains("| | time, s | from |\n|---|---|---|\n| sum | 1,234.5 | a |"), "{text}");
        let text = of(&ROW.replace("portable", "not recorded")).unwrap();
        assert!(text.contains("a machine; kernels not recorded; n = 1;"), "{text}");
        let cells = [ROW.to_owned(), other("sum", "goal", "planned"), other("mean", "goal", "stated")];
        let text = of(&cells.join("\n")).unwrap();
        assert!(text.contains("| mean | | 1,234.5 (c) |"), "{text}");
        let chosen = PAGE.replace("f.jsonl t", "f.jsonl t: goal | time");
        let (text, _) = page(&chosen, |_| Ok(cells.join("\n"))).unwrap();
        assert!(text.contains("| | goal, s | time, s |"), "{text}");
    }

    #[test]
    fn rows_that_are_not_whole_are_refused() {
        for key in ["table", "what", "figure", "value", "unit", "machine", "kernels", "parameters", "commit", "kind"] {
            let problem = of(&ROW.replace(&format!("\"{key}\""), "\"other\"")).unwrap_err();
            assert!(problem.contains(&format!("lacks `{key}`")), "{problem}");
        }
        assert!(of(&ROW.replace("\"measured\"", "\"guessed\"")).unwrap_err().contains("`kind` is guessed"));
        assert!(of(&[ROW, ROW].join("\n")).unwrap_err().contains("`time` of `sum` twice"));
        assert!(of("").unwrap_err().contains("no rows"));
        assert!(page("<!-- rows: f.jsonl t -->\n", |_| Ok(ROW.to_owned())).unwrap_err().contains("without"));
        let one = PAGE.replace("f.jsonl t", "f.jsonl t: bytes");
        assert!(page(&one, |_| Ok(ROW.to_owned())).unwrap_err().contains("no figure `bytes`"));
    }

    #[test]
    fn numbers_are_as_the_documents_write_them() {
        let cases = [(0.0, "0"), (999.0, "999"), (12_345.5, "12,345.5"), (0.042, "0.042"), (1.5e-11, "1.5·10^−11")];
        for (number, text) in cases {
            assert_eq!(printed(number), text);
        }
    }

    #[test]
    fn a_long_source_is_broken_before_120_columns() {
        let text = wrapped("word ".repeat(60).trim_end());
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }
}
