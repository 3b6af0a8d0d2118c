//! A template's source as the engine takes it. `transformers` adds a block to Jinja, `generation`, and Python's strings
//! have the operator `%`; the engine has neither:
//!
//! * `{% generation %}…{% endgeneration %}`, which marks what the model said, becomes a scope of its own (`with`);
//! * `'format' % values`, with a text on the left, becomes a call of the filter [`FORMAT`].
//!
//! Only tags and expressions are changed, and no line break is added.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// Python's `%` of a text, as a filter.
pub(super) const FORMAT: &str = "__percent";

/// The source with these two replaced.
pub(super) fn translated(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 64);
    let mut rest = source;
    while let Some((at, end)) = next_tag(rest) {
        let (text, tag) = rest.split_at(at);
        out.push_str(text);
        if end == "#}" {
            rest = after(tag, tag.find("#}").map(|i| i + 2), &mut out);
            continue;
        }
        let length = length_of(tag, end);
        let (tag, behind) = tag.split_at(length);
        let name = name_of(tag);
        match name {
            "generation" if end == "%}" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" if end == "%}" => {
                out.push_str(&tag.replacen("endgeneration", "endwith", 1));
            }
            _ => percents(tag, &mut out),
        }
        rest = behind;
        if name == "raw" && end == "%}" {
            rest = after(rest, end_of_raw(rest), &mut out);
        }
    }
    out.push_str(rest);
    out
}

/// Copies a part of a length, or all; returns the rest.
fn after<'a>(text: &'a str, length: Option<usize>, out: &mut String) -> &'a str {
    let (part, rest) = text.split_at(length.unwrap_or(text.len()));
    out.push_str(part);
    rest
}

/// Where the next tag, expression or comment begins, and how it ends.
fn next_tag(text: &str) -> Option<(usize, &'static str)> {
    let starts = [("{%", "%}"), ("{{", "}}"), ("{#", "#}")];
    let found = starts.iter().filter_map(|(start, end)| Some((text.find(start)?, *end)));
    found.min()
}

/// The length of a tag with its delimiters; texts in it may contain them.
fn length_of(tag: &str, end: &str) -> usize {
    let mut at = 2;
    while let Some(rest) = tag.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(end) {
            return at + 2;
        }
        at += token(rest).len();
    }
    tag.len()
}

/// The first word of a tag.
fn name_of(tag: &str) -> &str {
    let inner = tag.get(2..).unwrap_or_default().trim_start_matches(['-', '+']).trim_start();
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_');
    inner.get(..end.unwrap_or(inner.len())).unwrap_or_default()
}

/// The length of a raw block up to the tag that ends it.
fn end_of_raw(text: &str) -> Option<usize> {
    let mut tags = text.match_indices("{%");
    let ends = |(at, _): (usize, _)| {
        let tag = text.get(at..).unwrap_or_default();
        (name_of(tag) == "endraw").then_some(at)
    };
    tags.find_map(ends)
}

/// The first token of an expression: a text, a word or number, white space, or one character.
fn token(text: &str) -> &str {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return text;
    };
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let length = match first {
        '\'' | '"' => {
            let mut escaped = false;
            let end = text.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == first && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map_or(text.len(), |(at, _)| at + 1)
        }
        c if word(c) => text.find(|c| !word(c)).unwrap_or(text.len()),
        c if c.is_whitespace() => text.find(|c: char| !c.is_whitespace()).unwrap_or(text.len()),
        c => c.len_utf8(),
    };
    text.get(..length).unwrap_or(text)
}

fn blank(token: &str) -> bool {
    token.starts_with(char::is_whitespace)
}

/// Copies a tag with every `'format' % values` replaced.
fn percents(tag: &str, out: &mut String) {
    let mut rest = tag;
    // The last token that is not white space.
    let mut before = "";
    while !rest.is_empty() {
        let first = token(rest);
        let behind = rest.get(first.len()..).unwrap_or_default();
        let values = match first.starts_with(['\'', '"']) && !matches!(before, "*" | "/" | "%") {
            true => behind.trim_start().strip_prefix('%'),
            false => None,
        };
        // `%}` and `-%}` end the tag.
        match values.filter(|values| !values.starts_with('}')) {
            Some(values) => {
                let values = values.trim_start();
                let length = operand(values);
                let (operand, behind) = values.split_at(length);
                out.push_str(&format!("({first}|{FORMAT}("));
                percents(operand, out);
                out.push_str("))");
                rest = behind;
                before = ")";
            }
            None => {
                out.push_str(first);
                rest = behind;
                if !blank(first) {
                    before = first;
                }
            }
        }
    }
}

/// The length of what `%` takes: a value, with what is called, looked up and filtered of it.
fn operand(text: &str) -> usize {
    let mut at = 0;
    let mut wanted = true; // a value, or a name after a dot or a bar
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let first = token(rest);
        match first {
            _ if blank(first) => {
                let next = token(rest.get(first.len()..).unwrap_or_default());
                if !wanted && !matches!(next, "." | "|") {
                    break;
                }
                at += first.len();
            }
            "(" | "[" | "{" => {
                at += bracketed(rest);
                wanted = false;
            }
            "." | "|" if !wanted => {
                at += 1;
                wanted = true;
            }
            "-" | "+" if wanted && !rest.starts_with("-%}") && !rest.starts_with("-}}") => at += 1,
            _ if wanted && first.starts_with(|c: char| c.is_alphanumeric() || "_'\"".contains(c)) => {
                at += first.len();
                wanted = false;
            }
            _ => break,
        }
    }
    at
}

/// The length of a bracketed part.
fn bracketed(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0usize);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let first = token(rest);
        at += first.len();
        match first {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            _ => {}
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn generation_is_a_scope() {
        for (source, expected) in [
            ("{% generation %}a{% endgeneration %}", "{% with %}a{% endwith %}"),
            ("{%- generation -%}a{%-endgeneration+%}", "{%- with -%}a{%-endwith+%}"),
            (
                "generation {{ generation }} {# {% generation %} #}",
                "generation {{ generation }} {# {% generation %} #}",
            ),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw %}{% generation %}{% endraw %}{% with %}",
            ),
            ("{% set generation = 1 %}", "{% set generation = 1 %}"),
            ("{{ 'a\\'%}' }}{% generation %}", "{{ 'a\\'%}' }}{% with %}"),
            ("{% generation", "{% with"),
            ("{{ 'open", "{{ 'open"),
            ("{#", "{#"),
        ] {
            assert_eq!(translated(source), expected, "{source}");
        }
    }

    #[test]
    fn formats_are_filters() {
        for (source, expected) in [
            ("{{ '%s' % x }}", "{{ ('%s'|__percent(x)) }}"),
            ("{{ '%s' % x}}", "{{ ('%s'|__percent(x))}}"),
            ("{{ '%s' %x -}}", "{{ ('%s'|__percent(x)) -}}"),
            ("{% set a = \"%s:%d\" % (m.role, 1) + 'b' %}", "{% set a = (\"%s:%d\"|__percent((m.role, 1))) + 'b' %}"),
            ("{{ '%s' % m['a'].b(1)|trim ~ 'c' }}", "{{ ('%s'|__percent(m['a'].b(1)|trim)) ~ 'c' }}"),
            ("{{ '%s' % ('%s' % x) }}", "{{ ('%s'|__percent((('%s'|__percent(x))))) }}"),
            ("{% if x == 'a' %}", "{% if x == 'a' %}"),
            ("{% if x == 'a'%}%{% endif -%}", "{% if x == 'a'%}%{% endif -%}"),
            ("{% if loop.index0 % 2 == 0 %}", "{% if loop.index0 % 2 == 0 %}"),
            ("a 'b' % c", "a 'b' % c"),
            ("{{ 'é' % -1 }}", "{{ ('é'|__percent(-1)) }}"),
        ] {
            assert_eq!(translated(source), expected, "{source}");
        }
    }

    /// No source makes it panic or grow without bound.
    #[test]
    fn any_source() {
        let pieces = [
            "{%",
            "%}",
            "{{",
            "}}",
            "'",
            "\"",
            "\\",
            "%",
            "raw",
            "endraw",
            " ",
            "(",
            ")",
            "generation",
            "é",
            "-",
            "|",
            ".",
        ];
        let mut state = 7u64;
        for _ in 0..20_000 {
            let mut source = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                source.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            assert!(translated(&source).len() <= source.len() * 16, "{source}");
        }
    }
}
