#!/usr/bin/env python3
"""Search your own documents without showing them to the machine that embeds them.

    python3 examples/rag/rag.py add notes/*.txt                 # embeds what is new, a paragraph a document
    python3 examples/rag/rag.py ask "when does the lease end?"  # the nearest paragraphs

The server is that of HUSHED_SERVER and HUSHED_PIN (or HUSHED_CA, HUSHED_TOKEN_FILE, …). Paragraphs, vectors and questions stay on this
machine: the vectors are in a folder of Qdrant's (HUSHED_RAG, by default ./private-index), and no other process is asked. docs/rag.md says
what the server learns.
"""

import hashlib
import os
import pathlib
import sys
import uuid

from langchain_core.documents import Document
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, VectorParams

from hushed.langchain import HushedEmbeddings

FOLDER = os.environ.get("HUSHED_RAG", "private-index")
NAME = "documents"
# Paragraphs that are embedded and kept before the next ones.
BATCH = 16


def paragraphs(path):
    """The paragraphs of a text file, each with a name that follows from its words and its place."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    for place, paragraph in enumerate(part.strip() for part in text.split("\n\n")):
        if paragraph:
            name = hashlib.sha256(f"{path}\n{place}\n{paragraph}".encode()).digest()
            yield str(uuid.UUID(bytes=name[:16])), Document(paragraph, metadata={"source": f"{path}, paragraph {place + 1}"})


def opened(embeddings):
    """The index of the model in use. One of another model's vectors is not touched."""
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    client = QdrantClient(path=FOLDER)
    bundle = embeddings.encoder.bundle[:16]
    collection = f"{NAME}-{bundle}"
    if not client.collection_exists(collection):
        width = embeddings.encoder.get_sentence_embedding_dimension()
        client.create_collection(collection, vectors_config=VectorParams(size=width, distance=Distance.COSINE))
    return QdrantVectorStore(client=client, collection_name=collection, embedding=embeddings)


def add(store, paths):
    found = [pair for path in paths for pair in paragraphs(path)]
    there = {document.metadata["_id"] for document in store.get_by_ids([name for name, _ in found])}
    new = [(name, document) for name, document in found if name not in there]
    for done in range(0, len(new), BATCH):
        part = new[done : done + BATCH]
        store.add_documents([document for _, document in part], ids=[name for name, _ in part])
        print(f"{done + len(part)} of {len(new)} new paragraphs", file=sys.stderr)
    print(f"{len(new)} new of {len(found)} paragraphs", file=sys.stderr)


def ask(store, question):
    for document, score in store.similarity_search_with_score(question, k=3):
        print(f"{score:.3f}  {document.metadata['source']}: {document.page_content}")


def main():
    verb, *rest = sys.argv[1:] or [""]
    if verb not in ("add", "ask") or not rest:
        sys.exit(__doc__)
    # Texts that are too long are embedded by their beginning.
    embeddings = HushedEmbeddings(truncate=True)
    store = opened(embeddings)
    try:
        add(store, rest) if verb == "add" else ask(store, " ".join(rest))
    finally:
        embeddings.encoder.close()
        store.client.close()


if __name__ == "__main__":
    main()
