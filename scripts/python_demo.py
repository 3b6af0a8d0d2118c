#!/usr/bin/env python3
"""A private search in Python, server and client in one process: python3 scripts/python_demo.py DIR [QUESTION]

DIR is the folder of a sentence encoder; the package `hushed` is installed (`make wheel`). The two sides share nothing but the address and the
certificate's SHA-256, as they would on two machines.
"""

import sys

import hushed

DOCUMENTS = [
    "Turn the main valve off before you open a pipe.",
    "Knead the dough for ten minutes and let it rest for an hour.",
    "The notice period is three months to the end of a quarter.",
]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, question = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "how do I fix a leaking tap?"
    with hushed.serve(folder) as server, hushed.SentenceEncoder(server.address, pin=server.pin) as encoder:
        corpus = encoder.encode_document(DOCUMENTS)
        query = encoder.encode_query(question)
        [scores] = encoder.similarity(query, corpus)
        for score, text in sorted(zip(scores, DOCUMENTS), reverse=True):
            print(f"{score:6.3f}  {text}")
        cost = encoder.last_cost
        print(
            f"The server saw {cost.tokens} tokens and {(cost.bytes_sent + cost.bytes_received) / 1e6:.1f} MB "
            f"in {cost.rounds} rounds, {cost.seconds:.2f} s."
        )


if __name__ == "__main__":
    main()
