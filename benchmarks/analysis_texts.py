"""What ``docs/analysis.md`` explains, by subcommand."""

HEAD = """# Analysis and evaluation

Each command that looks at trained models or at their translations, with what it computes and what it prints. Made by
`python benchmarks/analysis.py --corpus "$CORPORA/tatoeba-deen"`, which trains the models below and runs the commands
as they stand here. Every command has `--help` and prints its numbers as JSON with `--json`; figures are PNG, SVG or
PDF by the name of `--output`. What units do is in [mute.md](mute.md).
"""

TEXTS = {
    "probe": """How much does a translation lose when a layer, of all that it does, may keep only what is linear?
`probe` puts the linear layer `y = W x + b` that comes nearest to a layer in the layer's place, one layer at a time, and
translates (Sections 4 and 5.5 of "Multi-Layer Transformers with Depth-Wise LSTMs", Tables 6 and 7). It works on all
families of this plugin and on fairseq's own `transformer`.

The maps of all layers are fitted in one pass over the training data, in closed form: what is kept are sums of x'x and
x'y, in float64. `--max-tokens-used` says how much of the data is read, `--processes` how many processes or GPUs share
the work. A depth-wise layer passes on the pair (Out, Cell), about which the paper says nothing, so both readings are
reported: a map of the pair, and a map of Out alone with the cell passed on unchanged. *Unexplained* is the share of
the variance of a layer's output that its map misses, on the data it was fitted on. What is finished is not done again
when the command is repeated.

The folder also gets a checkpoint for each row (unless `--no-checkpoints` is given), an ordinary one:
`fairseq-generate`, `fairseq-interactive` and `average` take it. The same can be trained by gradient, for several
layers at once, or for translation instead of the layer's output:

```sh
fairseq-train data-bin --user-dir fairseq_depthwise --arch linearized_transformer --criterion linearization_probe \\
    --probe-path checkpoint_best.pt --probe-layers encoder.1,decoder.6 --probe-objective task \\
    --optimizer adam --lr 1e-3 --max-tokens 4096 --max-epoch 1
```

`--probe-objective distill`, the default, has the same minimum as the closed form; `task` minimizes the label-smoothed
translation loss through the maps. Whatever else there is in the model stays as it was trained.

The paper's change of BLEU in per cent (Transformer base, WMT14 En-De; how its maps were trained, and what happened to
the cell, it does not say):

| layer | 1 | 2 | 3 | 4 | 5 | 6 |
|---|---|---|---|---|---|---|
| Transformer, encoder | -1.38 | -1.60 | -1.67 | -1.74 | -1.45 | -1.13 |
| Transformer, decoder | +0.25 | +0.33 | -0.29 | -0.07 | -2.14 | -4.10 |
| depth-wise LSTM, encoder | -3.20 | -6.37 | -4.65 | -3.52 | -1.90 | -2.01 |
| depth-wise LSTM, decoder | -0.39 | -0.84 | -0.67 | -1.27 | -5.60 | -30.06 |

And here:""",
    "similarity": """Three cosines for each layer, averaged over all real positions of a part of the data
("Shallow-to-Deep Training", Section 3): of the layer's output with the embedding at the same position
(emb-similarity), with the output of the layer below (adjacent similarity), and with the mean of its sentence
(inter-similarity). `--side decoder` looks at the decoder, which reads the reference. Memory does not depend on the
size of the data.""",
    "gates": """Mean and standard deviation of the input, forget and output gate of each layer over all positions and
features, the share of values below 0.1 and above 0.9, and the length of the states that are passed up. The same means
and deviations are logged while a model is trained with `--log-gates`, also to TensorBoard.""",
    "score": """BLEU as each paper computes it, and chrF, through sacreBLEU. Without `--metric` it is sacreBLEU's own.
`tokenized` and `tokenized-lc` equal `multi-bleu.perl` without and with `-lc`; `compound-split` splits words at hyphens
first, with the papers' substitution `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`, which leaves the second hyphen of `a-b-c`;
`--compound-split-all` splits that one too, and the signature tells which. These three take text that is already
tokenized and never tokenize. A file may be plain text or what `fairseq-generate` printed, whose order is put right by
the sentences' numbers.""",
    "compare": """Paired bootstrap resampling or approximate randomization (sacreBLEU's). Files of several seeds are
given with commas between them and come out as mean and spread. With `--languages` folders are compared, one file a
language: BLEU94, BLEU4 and the win ratio of the OPUS-100 tables.""",
    "report": """`report` makes one HTML page of training runs, from their logs or TensorBoard files: loss, BLEU,
learning rate, depth, gates, speed, options and versions. It opens without network, in light and dark. On the terminal
it prints its summary. (The machine did other things beside these trainings; how fast the models are is in
[benchmarks.md](benchmarks.md).)""",
}
