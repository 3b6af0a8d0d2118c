#!/usr/bin/env python3
"""Makes a book of README and docs/ with mdBook, in target/book: `make book`.

The table of docs/index.md is its list of chapters, so a page that the table lacks is an error. Pages link to each other
as they do in the repository; here they lie in one folder, and every link and every anchor of the result is checked.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "book"
#: The book opens with README, so the list of documents has another name.
NAMES = {"README.md": "index.md", "docs/index.md": "documents.md"}
BESIDE = ["ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
SETTINGS = """[book]
title = "Hushed"
language = "en"
[output.html]
no-section-label = true
[output.html.search]
limit-results = 20
"""


def pages():
    """The files of the book: the path of each in the repository, and its name in the book."""
    documents = [path for path in (ROOT / "docs").iterdir() if path.is_file()]
    documents += [ROOT / name for name in ["README.md", "LICENSE", "NOTICE", *BESIDE]]
    paths = sorted(str(path.relative_to(ROOT)) for path in documents)
    return {path: NAMES.get(path, path.rpartition("/")[2]) for path in paths}


def moved(text, path, names):
    """A page with its links as they are in the book."""

    def link(match):
        target, hash, anchor = match[1].partition("#")
        if not target or ":" in target:
            return match[0]
        found = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if found not in names:
            sys.exit(f"book: {path} links to {target}, which is not in the book")
        return f"]({names[found]}{hash}{anchor})"

    return re.sub(r"\]\(([^()\s]+)\)", link, text)


def summary(names):
    """mdBook's list of chapters."""
    listed = re.findall(r"^\| \[(.+?)\]\(([a-z-]+\.md)\) \|", (ROOT / "docs/index.md").read_text(), re.M)
    missing = {name for path, name in names.items() if path.startswith("docs/") and name.endswith(".md")}
    missing -= {file for _, file in listed} | {NAMES["docs/index.md"]}
    if missing:
        sys.exit(f"book: docs/index.md lacks {', '.join(sorted(missing))}")
    chapters = [("Hushed", "index.md"), ("Documents", NAMES["docs/index.md"]), *listed]
    chapters += [(name.partition(".")[0].capitalize(), name) for name in BESIDE]
    return "# Summary\n\n" + "".join(f"- [{title[0].upper()}{title[1:]}]({file})\n" for title, file in chapters)


class Page(html.parser.HTMLParser):
    """The ids of a page, and what it links to and shows."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            if (tag, name) in (("a", "href"), ("img", "src")):
                self.links.append(value)


def broken(folder):
    """Links of the book that lead nowhere."""
    pages = {path.name: Page(path.read_text()) for path in folder.glob("*.html")}
    for name, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            target, anchor = urllib.parse.unquote(target), urllib.parse.unquote(anchor)
            if ":" in target:
                continue
            there = (folder / target).is_file() if target else True
            if not there or anchor and anchor not in pages[target or name].ids:
                yield f"{name}: {link}"


def main():
    if not shutil.which("mdbook"):
        sys.exit("book: mdbook is missing. Run: cargo install --locked mdbook")
    shutil.rmtree(WORK, ignore_errors=True)
    source = WORK / "src"
    source.mkdir(parents=True)
    names = pages()
    for path, name in names.items():
        if name.endswith(".md"):
            (source / name).write_text(moved((ROOT / path).read_text(), path, names))
        else:
            shutil.copyfile(ROOT / path, source / name)
    (source / "SUMMARY.md").write_text(summary(names))
    (WORK / "book.toml").write_text(SETTINGS)
    subprocess.run(["mdbook", "build", WORK], check=True)
    wrong = list(broken(WORK / "book"))
    if wrong:
        sys.exit("book: these links lead nowhere:\n  " + "\n  ".join(wrong))
    print(WORK / "book/index.html")


if __name__ == "__main__":
    main()
