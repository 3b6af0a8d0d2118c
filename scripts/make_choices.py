#!/usr/bin/env python3
"""Makes items of four endings from text that a decoder was not trained on: which of them goes on as the text does?

    python3 scripts/make_choices.py data/decoder-small/held-out.txt > data/decoder-small/items.jsonl

An item's prompt is up to 20 words of a line, its right ending the 6 words after them, and its wrong endings the right ones of items of other
lines. Lines that are not English prose or code, by their letters, and the notice with which pages of old books begin are left out. What is
taken follows from the text alone: the same file gives the same items. 63 items of four are 252 texts: a batch of 256 places has room for
them and a canary.
"""

import hashlib
import json
import pathlib
import sys

ITEMS, ENDINGS, PROMPT, ENDING, STEP = 63, 4, 20, 6, 13
# Bytes of a text, at most: a token is seldom less than two.
MOST = 200
# Places of the wrong endings after the right one.
OTHERS = (17, 31, 45)


def parts(words):
    """(prompt, ending) at every STEP words."""
    for at in range(8, len(words) - ENDING, STEP):
        prompt = " ".join(words[max(0, at - PROMPT) : at])
        ending = " " + " ".join(words[at : at + ENDING])
        if len(prompt) + len(ending) <= MOST and len(ending) >= 20:
            yield prompt, ending


def main():
    lines = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line.isascii()]
    taken, seen = [], set()
    # One of each line, then a second of each, and so on.
    queues = [(number, list(parts(line.split()))) for number, line in enumerate(lines)]
    while len(taken) < ITEMS:
        before = len(taken)
        for number, queue in queues:
            if queue and len(taken) < ITEMS:
                prompt, ending = queue.pop(0)
                if ending not in seen:
                    seen.add(ending)
                    taken.append((number, prompt, ending))
        if len(taken) == before:
            sys.exit(f"there is text for {before} items only")
    for i, (number, prompt, ending) in enumerate(taken):
        endings = []
        for other in OTHERS:
            j = (i + other) % ITEMS
            while taken[j][0] == number or taken[j][2] in endings:
                j = (j + 1) % ITEMS
            endings.append(taken[j][2])
        label = hashlib.sha256(prompt.encode()).digest()[0] % ENDINGS
        endings.insert(label, ending)
        print(json.dumps({"prompt": prompt, "endings": endings, "label": label}))


main()
