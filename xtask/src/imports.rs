//! What the files of a crate import from each other, read from their tokens: `use` and paths in code, macros included.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path in a crate: of a module from the root, or as it is written in the code.
pub type Path = Vec<String>;

/// The imports of a crate.
#[derive(Default)]
pub struct Imports {
    /// Each module that is compiled outside tests, and that of the file that has it: `mod x { … }` is not a file.
    modules: BTreeMap<Path, Path>,
    /// What the names that each module imports stand for, re-exports too.
    names: BTreeMap<(Path, String), Vec<Path>>,
    found: Vec<Found>,
}

/// A path, and the module where it is written.
struct Found {
    module: Path,
    path: Path,
    written: Written,
}

enum Written {
    Use,
    /// A re-export shows where an item is, and uses it only if the file says its name elsewhere.
    Reexport(String),
    Inline,
}

/// Where a path leads.
enum Target {
    Module(Path),
    /// An item, by the module that defines it.
    Item(Path),
}

impl Imports {
    /// Reads the files of a crate, given by their modules. Items for tests only are left out, and so are the files that
    /// nothing else declares.
    pub fn read(files: &BTreeMap<Path, &str>) -> Result<Imports, Vec<String>> {
        let mut imports = Imports::default();
        imports.file(Path::new(), files)?;
        Ok(imports)
    }

    fn file(&mut self, module: Path, files: &BTreeMap<Path, &str>) -> Result<(), Vec<String>> {
        let Some(text) = files.get(&module) else {
            return Ok(());
        };
        let tokens = text.parse::<TokenStream>().map_err(|error| vec![format!("{}: {error}", module.join("::"))])?;
        self.modules.insert(module.clone(), module.clone());
        let mut reader = Reader {
            file: module.clone(),
            imports: self,
            children: Vec::new(),
            found: Vec::new(),
            idents: BTreeSet::new(),
        };
        reader.tokens(tokens, &module);
        let (children, found, idents) = (reader.children, reader.found, reader.idents);
        let uses = |found: &Found| match &found.written {
            Written::Reexport(name) => idents.contains(name),
            Written::Use | Written::Inline => true,
        };
        self.found.extend(found.into_iter().filter(uses));
        for child in children {
            self.file(child, files)?;
        }
        Ok(())
    }

    /// The files that each file imports items from, by their modules. Err: imports that do not say what they import.
    pub fn edges(&self) -> Result<BTreeMap<Path, BTreeSet<Path>>, Vec<String>> {
        let own = self.modules.values().map(|file| (file.clone(), BTreeSet::new()));
        let mut edges: BTreeMap<Path, BTreeSet<Path>> = own.collect();
        let mut globs = Vec::new();
        for Found { module, path, .. } in &self.found {
            let file = &self.modules[module];
            let glob = path.last().is_some_and(|last| last == "*");
            let path = if glob { &path[..path.len() - 1] } else { path };
            match self.target(module, path, 0) {
                Some(Target::Item(to)) if self.modules[&to] != *file => {
                    edges.entry(file.clone()).or_default().insert(self.modules[&to].clone());
                }
                Some(Target::Module(to)) if glob && self.modules[&to] != *file => {
                    globs.push(format!("{} imports {}::*", file.join("::"), to.join("::")));
                }
                _ => {}
            }
        }
        match globs.is_empty() {
            true => Ok(edges),
            false => Err(globs),
        }
    }

    /// Follows a path that stands in a module, through the names that modules import. `None`: another crate's.
    fn target(&self, module: &[String], path: &[String], depth: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Path::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            name => match self.named(module, name, rest.is_empty(), depth)? {
                Target::Module(module) => module,
                item => return Some(item),
            },
        };
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at.pop();
            } else {
                let imported = self.names.contains_key(&(at.clone(), name.clone()));
                match self.named(&at, name, after.is_empty(), depth) {
                    Some(Target::Module(module)) => at = module,
                    Some(item) => return Some(item),
                    None if imported => return None,
                    None => return Some(Target::Item(at)),
                }
            }
            rest = after;
        }
        Some(Target::Module(at))
    }

    /// What a name stands for in a module that declares or imports it. As the last of a path, a name that is both of a
    /// module and of an item is the item's.
    fn named(&self, module: &[String], name: &str, last: bool, depth: usize) -> Option<Target> {
        let mut child = module.to_vec();
        child.push(name.to_owned());
        let child = self.modules.contains_key(&child).then_some(Target::Module(child));
        if child.is_some() && !last {
            return child;
        }
        // An import may name itself, as `use rand::rand` does.
        let imported = self.names.get(&(module.to_vec(), name.to_owned())).filter(|_| depth < 16);
        let mut imported = imported.into_iter().flatten();
        imported.find_map(|path| self.target(module, path, depth + 1)).or(child)
    }
}

/// Reads the tokens of one file.
struct Reader<'a> {
    file: Path,
    imports: &'a mut Imports,
    /// Modules in files of their own.
    children: Vec<Path>,
    found: Vec<Found>,
    /// Every name in the file's code, outside `use`.
    idents: BTreeSet<String>,
}

impl Reader<'_> {
    fn tokens(&mut self, tokens: TokenStream, module: &Path) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut i = 0;
        while let Some(token) = tokens.get(i) {
            let rest = &tokens[i..];
            let before = |back: usize| i.checked_sub(back).and_then(|i| tokens.get(i));
            i += match token {
                TokenTree::Punct(p) if p.as_char() == '#' => match rest {
                    [_, TokenTree::Group(group), item @ ..] if for_tests(group.stream()) => 2 + item_length(item),
                    [_, _, TokenTree::Group(group), ..] if is(rest.get(1), "!") && for_tests(group.stream()) => {
                        return;
                    }
                    _ => 1,
                },
                TokenTree::Ident(word) if word == "use" && !is(rest.get(1), "<") => {
                    let length = rest.iter().take_while(|token| !is(Some(token), ";")).count();
                    let public = is(before(1), "pub") || is(before(2), "pub");
                    self.import(&rest[1..length], module, &Path::new(), public);
                    length
                }
                TokenTree::Ident(word) if word == "mod" => self.declaration(&rest[1..], module),
                // `pub(in crate::a)` imports nothing.
                TokenTree::Ident(word) if word == "pub" => match rest.get(1) {
                    Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => 2,
                    _ => 1,
                },
                TokenTree::Ident(_) => {
                    let path = path(rest);
                    let length = path.len() * 3 - 2;
                    let member = is(before(1), ".") && !is(before(2), ".");
                    let continued = is(before(1), ":") && is(before(2), ":");
                    let field = is(rest.get(1), ":") && !is(rest.get(2), ":");
                    if !member && !continued {
                        if path.len() > 1 {
                            self.found(module, path, Written::Inline);
                        } else if !field && !is(before(1), "fn") {
                            // Neither a field nor a function's declaration.
                            self.idents.extend(path);
                        }
                    }
                    length
                }
                TokenTree::Group(group) => {
                    self.tokens(group.stream(), module);
                    1
                }
                _ => 1,
            };
        }
    }

    /// `x;` or `x { … }` after `mod`: how many tokens it takes, with that word.
    fn declaration(&mut self, rest: &[TokenTree], module: &Path) -> usize {
        let [TokenTree::Ident(name), next, ..] = rest else {
            return 1;
        };
        let mut child = module.clone();
        child.push(name.to_string());
        match next {
            TokenTree::Group(group) => {
                self.imports.modules.insert(child.clone(), self.file.clone());
                self.tokens(group.stream(), &child);
            }
            _ => self.children.push(child),
        }
        3
    }

    /// What follows `use`, or stands in the braces after a prefix.
    fn import(&mut self, tree: &[TokenTree], module: &Path, prefix: &Path, public: bool) {
        let mut path = prefix.clone();
        let mut name = None;
        let mut tokens = tree.iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if word == "as" => name = tokens.next().map(TokenTree::to_string),
                // At the end of a list, `self` is the module before it.
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) => {
                    let list: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in list.split(|token| is(Some(token), ",")) {
                        self.import(part, module, &path, public);
                    }
                    return;
                }
                TokenTree::Punct(p) if p.as_char() == '*' => path.push("*".to_owned()),
                _ => {}
            }
        }
        if let (Some(last), false) = (path.last(), tree.is_empty()) {
            let name = name.unwrap_or_else(|| last.clone());
            let names = self.imports.names.entry((module.clone(), name.clone()));
            names.or_default().push(path.clone());
            let written = if public { Written::Reexport(name) } else { Written::Use };
            self.found(module, path, written);
        }
    }

    fn found(&mut self, module: &Path, path: Path, written: Written) {
        let module = module.clone();
        self.found.push(Found { module, path, written });
    }
}

/// The names of the path that begins these tokens.
fn path(tokens: &[TokenTree]) -> Path {
    let mut path = vec![tokens[0].to_string()];
    let mut rest = &tokens[1..];
    while let [colon, second, TokenTree::Ident(name), after @ ..] = rest {
        if !is(Some(colon), ":") || !is(Some(second), ":") {
            break;
        }
        path.push(name.to_string());
        rest = after;
    }
    path
}

/// Whether an attribute is `cfg(test)` or `cfg(all(test, …))`.
fn for_tests(attribute: TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// How many tokens the item, field, arm or statement takes that stands after an attribute.
fn item_length(tokens: &[TokenTree]) -> usize {
    const ITEMS: [&str; 13] =
        ["fn", "struct", "enum", "trait", "impl", "mod", "use", "const", "static", "type", "unsafe", "async", "extern"];
    let mut item = false;
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) => item |= ITEMS.contains(&word.to_string().as_str()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return i + 1,
            // A comma ends a field; in an item it stands between type parameters.
            token if is(Some(token), ";") || (is(Some(token), ",") && !item) => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn is(token: Option<&TokenTree>, text: &str) -> bool {
    match token {
        Some(TokenTree::Ident(word)) => word == text,
        Some(TokenTree::Punct(p)) => text.chars().eq([p.as_char()]),
        _ => false,
    }
}
