"""LangChain's own tests of embeddings."""

import pytest

suite = pytest.importorskip("langchain_tests.integration_tests", reason="langchain-tests is not installed")
core = pytest.importorskip("hushed.langchain")


class TestHushedEmbeddings(suite.EmbeddingsIntegrationTests):
    @pytest.fixture(autouse=True)
    def connect(self, server):
        self.server = server

    @property
    def embeddings_class(self):
        return core.HushedEmbeddings

    @property
    def embedding_model_params(self):
        return {"server": self.server.address, "pin": self.server.pin}
