"""Figures published in the paper, as Markdown to show beside the results."""

from __future__ import annotations

SETTING = (
    "mBART-50, 12 + 12 layers, 602 M parameters; scorer at layer 3; English to Chinese of WMT19, adjacent sentences "
    "joined to documents of up to 128 tokens; four GPUs for 36 to 48 hours; one model per ratio"
)

RECONSTRUCTION = (
    "In the paper: autoencoding has a BLEU above 99 from r = 0.1 on; with both objectives the curve is flat from there. "
    "Other values are only in a figure."
)

PREFERENCES = (
    "In the paper, at r = 0.1 over 128 documents: the six most frequent nuggets are mostly punctuation, conjunctions and "
    "prepositions; the end token is preferred, the token that begins a text is never chosen; 'the' is 5.2% of all "
    "tokens and 0.7% of the nuggets. Nine other languages are similar."
)

PROBING = (
    "In the paper, over 10,000 documents at r = 0.1: a nugget raises the probability of the text before it, for documents of "
    "64, 128 and 256 tokens alike."
)

SIMILARITY = """\
| in the paper | objective | paraphrase identification, MRR | passage reranking, MRR |
|---|---|---|---|
| nuggets, r = 0.25 | autoencoding | 92.30 | 44.81 |
| nuggets, r = 0.05 | translation | 92.11 | 40.54 |
| nuggets, r = 0.1 | translation | 96.69 | 50.04 |
| nuggets, r = 0.15 | translation | 97.31 | 52.36 |
| nuggets, r = 0.25 | translation | 97.38 | 56.51 |
| TSDAE, one vector | denoising | 95.59 | 50.48 |
| TSDAE, one vector | translation | 95.04 | 45.86 |
| ColBART, all tokens | none | 94.83 | 52.44 |

| the paper's ablation, translation | paraphrase identification, MRR | passage reranking, MRR |
|---|---|---|
| nuggets, r = 0.1, scorer at layer 3 | 96.69 | 50.04 |
| scorer at layer 0 | 69.82 | 29.20 |
| scorer at layer 6 | 93.24 | 48.84 |
| scorer at layer 9 | 84.03 | 47.36 |
| without feedback | 96.29 | 49.81 |
| chunking | 95.56 | 42.41 |
| nuggets, r = 0.033 | 89.07 | 49.49 |
| sentence ends | 87.91 | 38.40 |"""

PERPLEXITY = """\
| in the paper, perplexity by word on WikiText-103 | h = 1 | h = 2 | h = 4 | h = 8 |
|---|---|---|---|---|
| nuggets, r = 0.05 | 29.88 | 29.25 | 28.24 | 28.14 |
| nuggets, r = 0.1 | 29.83 | 29.21 | 28.44 | 28.10 |
| TSDAE, one vector | 30.09 | 29.55 | 29.01 | 28.77 |
| compressive transformer | - | - | 30.52 | - |

In the paper, without history (h = 0): 31.46."""

PUBLISHED = {
    "reconstruction": RECONSTRUCTION,
    "preferences": PREFERENCES,
    "probing": PROBING,
    "similarity": SIMILARITY,
    "perplexity": PERPLEXITY,
}
