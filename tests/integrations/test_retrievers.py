"""Retrievers of LangChain, LlamaIndex and Haystack over an index, with the real packages."""

from __future__ import annotations

import asyncio

import pytest
from haystack import Pipeline
from haystack.components.builders import PromptBuilder
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from tests.integrations.conftest import LONG, QUERY
from textnuggets.errors import ConfigError, InputError
from textnuggets.integrations.haystack import NuggetRetriever as Haystack
from textnuggets.integrations.langchain import NuggetRetriever as LangChain
from textnuggets.integrations.llama_index import NuggetRetriever as LlamaIndex


def from_langchain(index, **settings):
    found = LangChain(index=index, **settings).invoke(QUERY)
    return [(item.id, item.page_content, item.metadata["score"], item.metadata) for item in found]


def from_llama_index(index, **settings):
    found = LlamaIndex(index, **settings).retrieve(QUERY)
    return [(item.node.node_id, item.node.text, item.score, item.node.metadata) for item in found]


def from_haystack(index, **settings):
    if "filter" in settings:
        conditions = [
            {"field": f"meta.{key}", "operator": "==", "value": value}
            for key, value in settings.pop("filter").items()
        ]
        settings["filters"] = {"operator": "AND", "conditions": conditions}
    if "k" in settings:
        settings["top_k"] = settings.pop("k")
    found = Haystack(index, **settings).run(QUERY)["documents"]
    return [(item.id, item.content, item.score, item.meta) for item in found]


@pytest.mark.parametrize("retrieve", [from_langchain, from_llama_index, from_haystack])
def test_documents_come_with_their_scores_metadata_and_spans(retrieve, index):
    hits = index.search(QUERY)
    found = retrieve(index)
    assert [name for name, *_ in found] == [hit.id for hit in hits]
    assert found[0][0] == "rain"
    for (_, text, score, metadata), hit in zip(found, hits, strict=True):
        assert (text, score) == (hit.text, pytest.approx(hit.score))
        assert metadata["year"] == hit.metadata["year"]
        assert metadata["spans"] == [list(passage.span) for passage in hit.passages]
    assert [name for name, *_ in retrieve(index, k=1)] == ["rain"]
    assert {name for name, *_ in retrieve(index, filter={"year": 1902})} == {"letter"}
    assert [name for name, *_ in retrieve(index, min_score=hits[0].score - 1e-4)] == ["rain"]


@pytest.mark.parametrize("retrieve", [from_langchain, from_llama_index, from_haystack])
def test_passages_can_be_returned_instead_best_first(retrieve, index):
    found = retrieve(index, passages=True)
    assert len(found) >= 3
    scores = [score for *_, score, _ in found]
    assert scores == sorted(scores, reverse=True)
    for name, text, score, metadata in found:
        ((start, end),) = metadata["spans"]
        assert name == f"{metadata['document_id']}:{start}-{end}"
        assert metadata["score"] == score
        if metadata["document_id"] == "long":
            assert text == LONG[start:end]


def test_the_retriever_of_langchain_is_part_of_a_chain_and_async(index):
    retriever = LangChain(index=index, k=1)
    chain = {"context": retriever, "question": RunnablePassthrough()} | RunnableLambda(
        lambda given: f"{given['context'][0].page_content} / {given['question']}"
    )
    assert chain.invoke(QUERY) == f"{QUERY} / {QUERY}"
    assert asyncio.run(retriever.ainvoke(QUERY))[0].id == "rain"
    assert len(retriever.invoke(QUERY, k=2)) == 2


def test_the_retriever_of_haystack_is_part_of_a_pipeline_that_is_saved(index):
    index.close()
    pipeline = Pipeline()
    pipeline.add_component("retriever", Haystack(index.place, top_k=1))
    template = "{% for d in documents %}{{ d.content }}{% endfor %}"
    pipeline.add_component("prompt", PromptBuilder(template=template, required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["textnuggets.integrations.haystack"])
    assert again.run({"retriever": {"query": QUERY}})["prompt"]["prompt"] == QUERY
    again.get_component("retriever").index.close()


def test_a_node_of_llama_index_names_its_document_and_hides_numbers_from_the_language_model(index):
    node = LlamaIndex(index, k=1, passages=True).retrieve(QUERY)[0].node
    assert node.ref_doc_id == "rain"
    shown = node.get_content(metadata_mode="llm")
    assert "year: 1871" in shown
    assert "score" not in shown


def test_bad_settings_are_refused(index):
    with pytest.raises(InputError, match="compares with '=='"):
        Haystack(index, filters={"field": "meta.year", "operator": ">", "value": 1871})
    with pytest.raises(ConfigError, match="k must be a whole number"):
        LangChain(index=index, k=0).invoke(QUERY)
    with pytest.raises(InputError, match="the query is empty"):
        LlamaIndex(index).retrieve(" ")
