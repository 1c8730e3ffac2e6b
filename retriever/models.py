"""Models of the package sentence-transformers: one that embeds, one that reranks.

Rule: a model that is given by name or folder is loaded by its first use, once; whatever its loading can be told
beyond that (a device, a revision, another backend) is said to the package, whose own object is taken as well.
One thread at a time uses a model: a tokenizer of transformers changes its own settings in a call and raises
"Already borrowed" in the other thread, and one call of torch keeps every core busy.

Tried with sentence-transformers 5.0, 5.7 and 6.2; ``encode_query`` and ``encode_document`` came with 5.0.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.embedders import Truncation, checked_texts, positive, type_of
from retriever.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from retriever.documents import EmbedKind, Hit

__all__ = ["CrossEncoderReranker", "SentenceTransformerEmbedder"]

# Names under which a model may hold the text put before, the first that it has; the package asks in this order.
_PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


class SentenceTransformerEmbedder:
    """Any model of sentence-transformers as an embedder; queries and documents by their own ``encode`` methods.

    model: a model's name on the Hugging Face hub, a folder with one, or a SentenceTransformer. A name or a folder
        is loaded by the first call, and a folder without a network; for a device, a revision or a shorter vector
        make the SentenceTransformer yourself: ``SentenceTransformer("...", device="cuda", truncate_dim=256)``.
    query_prompt, document_prompt: put before each text of that kind, as in ``query_prompt="query: "``. None takes
        the model's own (its ``prompts`` "query"; "document", "passage" or "corpus"), and "" takes none.
    normalize: whether vectors get unit length.
    batch_size: most texts per run of the model, > 0.
    name: what is kept beside an index and compared with it later, and what a cache tells models apart by: another
        one for other vectors. By default the model's name with whatever is not the default here. A folder and an
        object have none unless it is given: neither says which model it holds.

    Call it with texts; returns float32 of shape (len(texts), dims), in the given order. ``dims`` is None until a
    model is loaded. A text, with what is put before it, is cut at the model's ``max_seq_length``: ``truncated``
    counts such texts, and the first time is a WARNING on the logger ``retriever``, which never holds the text;
    models whose tokenizer is not of transformers are not counted. Safe to share between threads, which wait for
    one another.
    Needs ``pip install 'valkey-retriever[sentence-transformers]'``: raises MissingExtra at the first call without
    it. Raises InvalidInput if a text is no str or has a lone surrogate.
    Source: sbert.net; Reimers, Gurevych, EMNLP 2019.

    >>> embed = SentenceTransformerEmbedder("intfloat/e5-small-v2", query_prompt="query: ", document_prompt="passage: ")
    >>> embed.name
    "intfloat/e5-small-v2 (query_prompt='query: ', document_prompt='passage: ')"
    """

    def __init__(
        self,
        model: SentenceTransformer | str | os.PathLike[str],
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        normalize: bool = True,
        batch_size: int = 32,
        name: str | None = None,
    ) -> None:
        for what, prompt in (("query_prompt", query_prompt), ("document_prompt", document_prompt)):
            if prompt is not None and not isinstance(prompt, str):
                raise InvalidInput(f"{what} is {type_of(prompt)}, not a str")
        if not isinstance(normalize, bool):
            raise InvalidInput(f"normalize is {normalize!r}, not a bool")
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidInput(f"name is {name!r}, not a non-empty str; leave it out if unknown")
        self._model = _Model(model, "SentenceTransformer", "encode_query", type(self).__name__)
        self._prompts: dict[EmbedKind, str | None] = {"query": query_prompt, "document": document_prompt}
        self._normalize = normalize
        self._batch_size = positive(batch_size, "batch_size")
        self._name = name
        self._truncation = Truncation(type(self).__name__)

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """One vector per text, embedded as a document: float32 of shape (len(texts), dims)."""
        return self._embed(texts, "document")

    def embed_query(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """One vector per text, embedded as a query: float32 of shape (len(texts), dims)."""
        return self._embed(texts, "query")

    @property
    def name(self) -> str | None:
        """The name given, or the model's with what is not the default; None for a folder or an object without."""
        if self._name is not None or self._model.name is None:
            return self._name
        said = [f"{kind}_prompt={prompt!r}" for kind, prompt in self._prompts.items() if prompt is not None]
        said += [] if self._normalize else ["normalize=False"]
        return self._model.name + (f" ({', '.join(said)})" if said else "")

    @property
    def dims(self) -> int | None:
        """The length of a vector; None until the model is loaded, or if it does not say."""
        return None if self._model.loaded is None else _dims(self._model.loaded)

    @property
    def truncated(self) -> int:
        """How many texts were cut at the model's ``max_seq_length`` so far."""
        return self._truncation.count

    def __repr__(self) -> str:
        return f"<SentenceTransformerEmbedder {self.name or 'without a name'}, truncated={self.truncated}>"

    def _embed(self, texts: Sequence[str], kind: EmbedKind) -> NDArray[np.float32]:
        texts = checked_texts(texts)
        with self._model.use() as model:
            if not texts:
                return np.empty((0, _dims(model) or 0), np.float32)
            self._count_cut(model, texts, kind)
            encode = model.encode_query if kind == "query" else model.encode_document
            vectors = encode(
                texts,
                prompt=self._prompts[kind],
                batch_size=self._batch_size,
                normalize_embeddings=self._normalize,
                convert_to_numpy=True,
                show_progress_bar=False,  # by default there is one where logging is at INFO
            )
        return np.asarray(vectors, np.float32)

    def _count_cut(self, model: Any, texts: list[str], kind: EmbedKind) -> None:
        # ``encode`` does not tell, so texts are tokenized once more, whole: a hundredth of the model's time.
        tokenizer, most = getattr(model, "tokenizer", None), model.max_seq_length
        if not callable(tokenizer) or not most:
            return
        before = self._prompts[kind]
        if before is None:
            names = (*_PROMPT_NAMES[kind], model.default_prompt_name)
            before = next((model.prompts[name] for name in names if name in model.prompts), None) or ""
        # verbose: without it transformers warns of each first text that is longer than the model takes.
        tokens = tokenizer([before + text for text in texts], truncation=False, padding=False, verbose=False)
        self._truncation.report(sum(1 for ids in tokens["input_ids"] if len(ids) > most), most)


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers as a reranker: it reads the query and a hit's text together.

    model: a model's name on the Hugging Face hub, a folder with one, or a CrossEncoder. A name or a folder is
        loaded by the first call, and a folder without a network.
    batch_size: most pairs per run of the model, > 0.

    Call it with the query's text and hits; returns (hit, score) pairs in the given order, a higher score being
    better: the model's own number, a logit or a probability. A pair is cut at the model's ``max_seq_length``.
    Safe to share between threads, which wait for one another.
    Needs ``pip install 'valkey-retriever[sentence-transformers]'``: raises MissingExtra at the first call without
    it. Raises InvalidInput if the model gives several numbers for a pair, which is then a classifier. A score that
    is no finite number is refused where the answer is read.
    Source: Nogueira, Cho, arXiv 1901.04085.

    >>> rerank = CrossEncoderReranker("cross-encoder/ms-marco-MiniLM-L6-v2")
    >>> rerank
    <CrossEncoderReranker cross-encoder/ms-marco-MiniLM-L6-v2>
    """

    def __init__(self, model: CrossEncoder | str | os.PathLike[str], *, batch_size: int = 32) -> None:
        self._model = _Model(model, "CrossEncoder", "predict", type(self).__name__)
        self._batch_size = positive(batch_size, "batch_size")

    def __call__(self, text: str, hits: Sequence[Hit], /) -> list[tuple[Hit, float]]:
        """A score for each hit, in the given order; higher is better."""
        if not hits:
            return []
        with self._model.use() as model:
            scores = model.predict(
                [(text, hit.text) for hit in hits],
                batch_size=self._batch_size,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        if scores.ndim != 1:
            raise InvalidInput(
                f"the model of {self!r} gives {scores.shape[1]} numbers for a pair, not one: it classifies, "
                "and a reranker's model scores (num_labels=1)"
            )
        return list(zip(hits, scores.tolist(), strict=True))

    def __repr__(self) -> str:
        return f"<CrossEncoderReranker {self._model.name or 'of a model without a name'}>"


class _Model:
    """A model, or what one is loaded from.

    kind: the class of sentence-transformers; method: what tells an object of it; who: ours, for messages.
    loaded: the model; None until it is first used. name: of the hub; None for an object or a folder.
    """

    def __init__(self, model: object, kind: str, method: str, who: str) -> None:
        self.loaded: Any = None
        self.name: str | None = None
        self._kind, self._who = kind, who
        self._source = ""
        self._lock = threading.Lock()
        if isinstance(model, (str, os.PathLike)):
            self._source = os.fspath(model)
            if not self._source:
                raise InvalidInput(f"the model of {who} is ''; pass a name, a folder or a {kind}")
            self._is_folder = os.path.isdir(self._source)  # what the package itself asks
            if not self._is_folder and isinstance(model, os.PathLike):
                raise InvalidInput(f"the model of {who}: there is no folder {self._source!r}")
            self.name = None if self._is_folder else self._source
        elif isinstance(model, type) or not callable(getattr(model, method, None)):
            given = f"the class {model.__name__}" if isinstance(model, type) else type_of(model)
            raise InvalidInput(
                f"the model of {who} is {given}; pass a name, a folder or a {kind} of sentence-transformers 5 or newer"
            )
        else:
            self.loaded = model

    @contextmanager
    def use(self) -> Iterator[Any]:
        """The model, loaded if it is not, for one thread at a time."""
        with self._lock:
            if self.loaded is None:
                self.loaded = self._load()
            yield self.loaded

    def _load(self) -> Any:
        try:
            import sentence_transformers
        except ImportError as error:
            raise MissingExtra(
                f"{self._who} cannot import {error.name or 'a package'} ({error}); "
                "pip install 'valkey-retriever[sentence-transformers]'"
            ) from error
        return getattr(sentence_transformers, self._kind)(self._source, local_files_only=self._is_folder)


def _dims(model: Any) -> int | None:
    # Renamed after 5.3, and where both are the old name warns.
    ask = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
    dims: int | None = ask()
    return dims
