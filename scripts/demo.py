"""A private semantic search: public documents, a private query, two processes. What `make run` shows."""
import os
import time

from two_processes import ROOT, Server, cosine, embeddings, hushed, lines, model_folder, run


def read(name):
    text = (ROOT / "data" / "search" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def main():
    documents = read("documents.txt")
    query = os.environ.get("QUERY", "").strip() or read("queries.txt")[0]
    model = model_folder()

    heading(f"{len(documents)} public documents, embedded in the clear")
    vectors = embeddings(hushed("clear", model, "--input", "-", stdin=lines(documents)))
    print("done: anybody may know these, so no cryptography is needed")

    heading("A private query, embedded by two processes that do not trust each other")
    started = time.monotonic()
    with Server(model) as server:
        ready = time.monotonic() - started
        print(f"hushed serve   has the weights, listens on {server.address} (TLS 1.3, up after {ready:.1f} s)")
        print("hushed embed   has the query, and no weights …", flush=True)
        [private], cost = server.embed([query])

    heading(f"Query: {query}")
    scores = sorted(((cosine(private, v), d) for v, d in zip(vectors, documents)), reverse=True)
    for place, (score, document) in enumerate(scores[:5], start=1):
        print(f"{place}. {score:.3f}  {document}")

    [clear] = embeddings(hushed("clear", model, "--input", "-", stdin=lines([query])))
    same = sorted(range(len(vectors)), key=lambda i: -cosine(clear, vectors[i])) == sorted(
        range(len(vectors)), key=lambda i: -cosine(private, vectors[i])
    )
    heading("Was it right?")
    print(f"cosine of the private embedding to the one in the clear: {cosine(private, clear):.6f}")
    print("the ranking is the same" if same else "the ranking differs between documents of nearly equal score")

    heading("What it cost")
    for part in cost["phases"]:
        print(f"{part['phase']:<12} {part['seconds']:12.2f} s")
    up, down = cost["bytes_up"], cost["bytes_down"]
    print(f"client to server {up / 1e6:8.1f} MB\nserver to client {down / 1e6:8.1f} MB\nrounds {cost['rounds']:>18}")

    heading("Who saw what")
    print(f"""client   the query, its {cost['tokens'][0]} tokens, the embedding; never a weight
server   the weights; that one text of {cost['tokens'][0]} tokens was embedded, and when; never the text or the embedding
both     the model's shape and tokenizer, the functions that stand in for GELU and softmax
Both processes follow the protocol here. SECURITY.md says what happens if one does not.""")


if __name__ == "__main__":
    run(main)
