# ---
# jupyter:
#   lmcourse:
#     needs: []
# ---

# %% [markdown]
# # Language models and the vanishing gradient: the measurements
#
# The [chapter](../book/recurrence.md) derives what a recurrent language model optimises, how its gradient travels back
# through time, and a bound on what arrives. This notebook measures each of these statements. Every cell that measures
# has a prediction before it and a reading after it. Models that were trained for longer than a notebook allows come
# from `recipes/recurrence.py`, three seeds each; the cells that read its log say so. It takes about a minute on two
# CPU cores.

# %% tags=["setup"]
# Setup, the same in every notebook. In Colab it adds the course's package
# and leaves torch and numpy alone.
import importlib.util
import platform

missing = importlib.util.find_spec("lmcourse") is None
if "google.colab" in str(get_ipython()) and missing:
    packages = [
        "lmcourse @ git+https://github.com/lmcourse/lmcourse@main",
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
import json
import math
from dataclasses import replace

import torch

from lmcourse import checks, course, data, device, jacobians, memory, plots, probes
from lmcourse import widgets
from lmcourse.ngram import KneserNey
from lmcourse.recurrent import Recurrent, RecurrentConfig, RecurrentLM

KINDS = {"RNN": ("rnn", 0.0)}
KINDS |= {f"LSTM, bias {b}": ("lstm", float(b)) for b in (0, 1, 3)}
MODELS = [*KINDS, "Transformer"]
LOOKS = [("vermilion", "-"), *(("blue", s) for s in (":", "--", "-")), ("green", "-.")]
look = {model: {"color": plots.COLOURS[c], "linestyle": line}
        for model, (c, line) in zip(MODELS, LOOKS)}
log = [json.loads(line) for line in data.read_asset("recurrence.jsonl").splitlines()]
runs = lambda task, name: [r for r in log if (r["task"], r["model"]) == (task, name)]
ends = lambda xs: (min(xs), max(xs))[: len(xs)]  # one number alone is not a range
spread = lambda xs, form: " to ".join(format(x, form) for x in ends(xs))
LN10 = math.log(10)  # the package's logarithms are natural, the figures' to base 10
print(len(log), "runs in the log, seeds", sorted({run["seed"] for run in log}))
for name in MODELS:
    print(f"{name:13} {runs('language', name)[0]['parameters']:,} parameters")

# %% [markdown]
# ## One gradient, by hand and by code
#
# The chapter's example: $h_t = \tanh(u h_{t-1} + x_t)$ with $u = 1$, $h_0 = 1$, inputs that make $h_1 = \tfrac12$ and
# $h_2 = 0$, and the loss $\tfrac12 (h_2 - 1)^2$.
#
# *Prediction:* the total derivative of $h_2$ by $u$ is $\tfrac54$, of which the partial one, with $h_1$ held fixed, is
# $\tfrac12$. So the gradient of the loss is $-1.25$, and $-0.5$ if the past is cut off.

# %%
u = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
inputs = [math.atanh(0.5) - 1, -0.5]


def loss_of(u, cut):
    h = torch.ones((), dtype=torch.float64)
    for x in inputs:
        # detach keeps the value and forgets how it came about
        h = torch.tanh(u * (h.detach() if cut else h) + x)
    return 0.5 * (h - 1) ** 2


hand = {}
for name, cut in (("total", False), ("cut before each step", True)):
    hand[name] = float(torch.autograd.grad(loss_of(u, cut), u)[0])
    print(f"{name:21} dL/du = {hand[name]:.4f}")
with torch.no_grad():
    finite = (loss_of(u + 1e-6, False) - loss_of(u - 1e-6, False)) / 2e-6
print(f"{'finite differences':21} dL/du = {float(finite):.4f}")

# %% [markdown]
# *Reading:* the numbers by hand. Cutting the past off does not blur the gradient; here it changes $-1.25$ to $-0.5$.
#
# ## Perplexity, beside counting
#
# The first 60,000 bytes of an unseen novel. The recipe's models (one layer, about 50,000 parameters, three seeds) read
# 819,200 bytes of other novels once, byte by byte; the n-gram models of bytes count as many bytes of the same novels. Beside
# them two models whose tokens are the course's 2,048 pieces, and which had more text: the course's AWD-LSTM (three layers,
# 1.4 million parameters, eight readings of the 1.5 million training pieces) and a 5-gram model of the same pieces.
#
# *Prediction:* every model beats the unigram model of its tokens. Whether so small a network, after one reading, beats
# counting is not something the derivation says; a 5-gram model may well win. Perplexities of bytes and of pieces cannot
# be compared: a piece has about three bytes, so equally good models differ as $x$ and $x^3$. Bits per byte can.

# %%
novels = lambda split: "\n\n".join(d.text for d in data.documents("novels", split))
as_bytes = lambda split: torch.tensor(list(novels(split).encode()))  # ids below 256
train, test = as_bytes("train"), as_bytes("test")[:60_000]
read = runs("language", "RNN")[0]["bytes"]
nats = {}  # of a token
for order in (1, 2, 3, 5):
    counted = KneserNey.fit([train[:read]], order, vocabulary=256)
    nats[f"{order}-gram"] = [-float(counted.log_probabilities(test)[1:].mean())]
nats |= {name: [run["nats"] for run in runs("language", name)] for name in MODELS}
pieces = course.tokenizer().encode(bytes(test.tolist()).decode(errors="ignore"))
pieces = torch.tensor([course.SEP, *pieces])
counted = KneserNey.fit([course.ids("train", ["novels"])], 5, vocabulary=course.SIZE)
awd, state, total = course.load("awdlstm"), {}, 0.0
of_pieces = {"5-gram, pieces": [-float(counted.log_probabilities(pieces)[1:].mean())]}
n = (len(pieces) - 1) // 8  # eight parts of the text side by side, to save time
inputs, targets = pieces[: 8 * n].view(8, n), pieces[1 : 8 * n + 1].view(8, n)
with torch.inference_mode():
    for x, y in zip(inputs.split(250, dim=1), targets.split(250, dim=1)):
        total += float(awd.loss(x, y, torch.ones(y.shape), state)) * y.numel()
of_pieces["AWD-LSTM, pieces"] = [total / targets.numel()]

# %%
bits = {name: [x / math.log(2) for x in xs] for name, xs in nats.items()}
tokens_a_byte = (len(pieces) - 1) / len(test)
for name, xs in of_pieces.items():
    bits[name] = [x / math.log(2) * tokens_a_byte for x in xs]
perplexity = {name: list(map(math.exp, xs)) for name, xs in (nats | of_pieces).items()}
print(f"{'':18}{'perplexity a token':>20}{'bits a byte':>18}")
for name, xs in perplexity.items():
    print(f"{name:18}{spread(xs, '.2f'):>20}{spread(bits[name], '.3f'):>18}")
print(f"{1 / tokens_a_byte:.2f} bytes a piece")

# %% [markdown]
# *Reading:* an n-gram model of bytes gains 0.88 bits from order 1 to 2, 0.66 from 2 to 3, and 0.79 by the next two orders
# together. All networks beat the unigram model, **none the 3-gram model**. After 400 updates the LSTMs (3.63 to 3.75 bits) are behind the 2-gram
# model and behind the RNN: they are barely trained, at a learning rate that was chosen for none of them. This is no comparison of kinds of network, and "trained" below means: at that stage. The AWD-LSTM, with more text and more
# parameters, ties with a 5-gram model of the same pieces (1.86 and 1.85). Its perplexity is eleven times that of the
# 5-gram model of bytes, and its bits per byte are fewer.
#
# ## The bound, beside what arrives
#
# Networks as they are initialised, on 512 bytes of real text. For each distance $\delta$: the norm of the last loss's
# gradient by the state $\delta$ steps before; the bound from the product of all norms; the coarser bound
# $\gamma^\delta$; and, for an LSTM, $\prod f$, what the direct path from cell to cell keeps.
#
# *Prediction:* the measured norm never exceeds either bound. The matrices start uniform within $\pm 1/\sqrt D$, so their
# largest singular value is near $2/\sqrt 3 = 1.15$, above 1, and the spectral radius near $1/\sqrt 3 = 0.58$: for the RNN
# we expect a bound that grows beside a gradient that falls by about $\log 0.58 = -0.55$ nats a step. If the direct path
# is what carries an LSTM's gradient, it falls by $\log \sigma(b)$: $-0.69$, $-0.31$ and $-0.05$ nats a step.

# %%
row = as_bytes("validation")[:513]


def follow(kind, bias, width, generator):
    """Logarithms at the distances 0 … 511: gradient by the state, two bounds, ∏f."""
    config = RecurrentConfig(256, width, layers=1, kind=kind, forget_bias=bias)
    model = RecurrentLM(config, generator)
    chain = memory.chain(model, row)
    decay = jacobians.decay(chain.jacobians[1:], chain.last)
    found = {"measured": decay.gradient, "product of norms": decay.norms}
    found["γ to the distance"] = decay.gamma
    if kind == "lstm":
        logs = jacobians.log_forget(model.layers[0], model.embedding(row[:-1]).detach())
        direct = logs[1:].flip(0).cumsum(0).mean(1)  # the mean over units
        # it starts where the measured line does, so that only the decay differs
        found["∏f"] = decay.gradient[0] + torch.cat([direct.new_zeros(1), direct])
    return model, found


rate = lambda logs: memory.slope(logs, 64, 448)  # nats a step

# %%
start, holds = {}, []
print(f"nats a step: {'measured':>10}{'norms':>9}{'log γ':>9}{'∏f':>9}")
for name, (kind, bias) in KINDS.items():
    width = 106 if kind == "rnn" else 64  # about equally many parameters
    start[name] = follow(kind, bias, width, device.seed(0))
    found = start[name][1]
    for bound in ("product of norms", "γ to the distance"):
        holds.append(bool((found["measured"] <= found[bound] + 1e-9).all()))
    print(f"{name:12} ", "".join(f"{rate(logs):9.3f}" for logs in found.values()))
print("below both bounds at each of 512 distances, four models:", all(holds))
drop = lambda logs: float(logs[511] - logs[0]) / LN10
print("log10 of what is left over 511 steps:")
for name, (_, found) in start.items():
    parts = [f"{k} {drop(logs):.1f}" for k, logs in found.items()]
    print(f"{name:12} ", ", ".join(parts))
U = start["RNN"][0].layers[0].weight_hh.detach().double()
norm = float(torch.linalg.matrix_norm(U, 2))
radius = float(torch.linalg.eigvals(U).abs().max())
print(f"RNN: largest singular value {norm:.2f}, spectral radius {radius:.2f},",
      f"its logarithm {math.log(radius):.2f}")

# %% lmcourse={"name": "bound"}
fig, axes = plots.figure(2, 2, width=7.4, height=5.2)
drawn = {"measured": ("blue", "-"), "product of norms": ("purple", "--")}
drawn |= {"γ to the distance": ("vermilion", ":"), "∏f": ("green", "-.")}
for ax, (name, (_, found)) in zip(axes.flat, start.items()):
    for label, logs in found.items():
        colour, line = drawn[label]
        ax.plot(logs / LN10, line, color=plots.COLOURS[colour], label=label)
    ax.set(title=name, ylim=(-160, 55))
for ax in axes[1]:
    ax.set(xlabel="distance (steps back)")
for ax in axes[:, 0]:
    ax.set(ylabel="log10 of the norm")
axes[1, 1].legend(loc="lower left")
alt, series = "Four panels: how log10 of a gradient's norm changes over 511 steps.", {}
for name, (_, found) in start.items():
    parts = [f"{label} {drop(logs):+.0f}" for label, logs in found.items()]
    alt += f" {name}: " + ", ".join(parts) + "."
    series |= {f"{name}, {label}": logs / LN10 for label, logs in found.items()}
plots.show(fig, alt, series)

# %% [markdown]
# *Reading:* no measured norm exceeds a bound. The RNN falls by 0.52 nats a step, close to the logarithm of its spectral radius, while
# both bounds *rise* by 0.10. **The prediction for the LSTMs failed**: the rates are −0.44, −0.13 and +0.01 where
# $\log \sigma(b)$ is −0.69, −0.31 and −0.05. With bias 3 the gradient at 511 steps is larger than at 0, with $\prod f$ at
# $10^{-11}$. So the direct path is not what carries the gradient here; what does is measured below. Only bias 0 has bounds that fall.
#
# ## Three seeds, before and after training
#
# The same from the recipe's log: three seeds, before training and after 819,200 bytes. Rates are fitted over the distances 64
# to 448, in nats a step; 0 means that the gradient neither grows nor falls.
#
# *Prediction:* none of the derivations says what training does to these rates. If the models learn to carry something
# over many bytes, the measured rates come nearer to 0. The bound must stay above in any case.

# %%
def logged_rate(run, when, key):
    """Least-squares slope over the logged distances 64 to 448, nats a step."""
    kept = [(d, x) for d, x in zip(run["places"], run[when][key]) if 64 <= d <= 448]
    d, x = torch.tensor(kept, dtype=torch.float64).T
    d = d - d.mean()
    return float((d * x).sum() / d.square().sum())


rates, left = {}, {}
for when, title in (("start", "at the start"), ("end", "trained")):
    print(f"{title:13}    rate: measured{'norms':>18}    left: measured{'best ∏f':>18}")
    for name in KINDS:
        logged = runs("language", name)
        for key in ("state", "norms"):
            rates[when, name, key] = [logged_rate(run, when, key) for run in logged]
        for key in ("state", "direct, best unit"):
            logs = [r[when][key] for r in logged if key in r[when]]
            left[when, name, key] = [(x[-1] - x[0]) / LN10 for x in logs]
        shown = [spread(rates[when, name, k], "+.3f") for k in ("state", "norms")]
        at_511 = [left[when, name, key] for key in ("state", "direct, best unit")]
        shown += [spread(x, ".1f") for x in at_511 if x]
        print(f"{name:13}", "".join(f"{x:>18}" for x in shown), sep="")
logs = [r[w] for w in ("start", "end") for n in KINDS for r in runs("language", n)]
below = [m <= b for x in logs for m, b in zip(x["state"], x["norms"])]
print(f"measured at most the bound at {sum(below)} of {len(below)} logged distances")

# %% [markdown]
# *Reading:* the seeds agree at the start. Training moved the rates, and not towards 0 in all: the RNN falls faster (−0.85 to
# −1.23), the LSTMs with bias 0 and 1 slower, the one with bias 3 faster than before. The bounds' rates are above 0 for all four. The
# last two columns, powers of ten that are left at 511 steps, changed sides. At the start the best unit's $\prod f$ is smaller than what
# was measured, by about 10 (bias 3) to more than 50 powers of ten (bias 0); after training it is larger, by more than 10
# for each bias. Two reasons are possible and were not told apart: the other paths cancel the direct one, or the last loss hardly
# reads the unit that keeps most (the slope of $\tanh(c)$ is near 0 where a cell has filled up).
#
# ## The cell's own path
#
# *Prediction:* with all recurrent weights at zero, the product of the full $\partial c_t / \partial c_{t-1}$ is
# $\prod f$, to rounding. With the weights as they are the theorem allows either to be the larger. Which of them makes the
# difference? At the start $c_{t-1}$ and $g_t$ are near 0 and $i_t$ near one half, so of the bracket's three terms that of $U_g$
# should be the largest: without $U_g$ alone most of the difference should be gone, without $U_f$ or $U_i$ alone hardly any.

# %%
groups = {"as they are": "", "without U_i": "i", "without U_f": "f", "without U_g": "g"}
groups |= {"U_g alone": "ifo", "none": "ifgo"}
paths, equal = {}, []
for name in list(KINDS)[1:]:
    layer = start[name][0].layers[0]
    xs = start[name][0].embedding(row[:-1]).detach()
    kept = layer.weight_hh.data.clone()
    for group, gates in groups.items():
        layer.weight_hh.data = kept.clone()
        for gate in gates:  # the rows of i, f, g and o follow one another
            layer.weight_hh.data["ifgo".index(gate) * 64:][:64] = 0
        passed = jacobians.log_norms(jacobians.cell_jacobians(layer, xs))[-1]
        direct = jacobians.log_forget(layer, xs)[1:].sum(0).max()  # of the best unit
        paths[name, group] = float(passed) / LN10, float(direct) / LN10
    equal.append(bool((passed - direct).abs() < 1e-9))
    layer.weight_hh.data = kept
print("log10 over 511 steps  ", "".join(f"{name:>14}" for name in list(KINDS)[1:]))
for group in groups:
    passed_on = [paths[name, group][0] for name in list(KINDS)[1:]]
    print(f"{group:23}", "".join(f"{x:14.1f}" for x in passed_on))
direct = [paths[name, "as they are"][1] for name in list(KINDS)[1:]]
print(f"{'∏f as they are':23}", "".join(f"{x:14.1f}" for x in direct))
print("without recurrent weights equal to ∏f within 1e-9:", all(equal))

# %%
arithmetic = {b: -511 * math.log1p(math.exp(-b)) / LN10 for b in (0, 1, 3)}
print("511 log10 σ(b):", ", ".join(f"b = {b}: {x:.1f}" for b, x in arithmetic.items()))
print(f"0.9^511 = {0.9**511:.3g}; 0.9^1022 in float32: {torch.tensor(0.9) ** 1022:.1f}")
half = 0.5 ** (1 / 511)
bias = math.log(half / (1 - half))
print(f"half is kept over 511 steps by f = {half:.5f}, bias {bias:.2f}")

# %% [markdown]
# *Reading:* without any recurrent weight the product is $\prod f$, as proved. Taking away $U_g$ alone brings it to within half a
# power of ten of $\prod f$ for all three biases; $U_g$ alone gives all of it for bias 0 and 1, and all but 1.5 powers
# of ten for bias 3. $U_i$ and $U_f$ matter by half a power of ten at most. So at the start, on this text, what $\prod f$ leaves out goes
# from the cell through $h$ and the candidate $g$ to the next cell. The arithmetic agrees with the tutorials'; 0.9^1022 is 0 in float32.
#
# ## Exploding, and a spectral radius that says nothing
#
# The RNN's recurrent matrix times 0.5, 1, 2 and 4; and the chapter's matrix of two rows, whose spectral radius is 0.
#
# *Prediction:* below a largest singular value of 1 the bound falls and so must the gradient; above, the bound says nothing,
# and only the measurement tells whether the gradient grows. The two-row example grows by a factor of 2 a step.

# %% lmcourse={"tolerance": {"atol": {"0.001": 0.054}}}
print(f"{'U times':>8}{'norm':>8}{'radius':>8}{'measured':>10}{'log γ':>8} nats a step")
exploding = {}
for scale in (0.5, 1, 2, 4):
    model = RecurrentLM(RecurrentConfig(256, 106, layers=1, kind="rnn"), device.seed(0))
    model.layers[0].weight_hh.data *= scale
    chain = memory.chain(model, row)
    decay = jacobians.decay(chain.jacobians[1:], chain.last)
    exploding[scale] = rate(decay.gradient), rate(decay.gamma)
    print(f"{scale:8}{scale * norm:8.2f}{scale * radius:8.2f}",
          f"{exploding[scale][0]:9.3f}{exploding[scale][1]:8.3f}")

two = Recurrent("rnn", 2, 2).double()
two.weight_hh.data = torch.tensor([[2.0, 2.0], [-2.0, -2.0]], dtype=torch.float64)
two.weight_ih.data = torch.eye(2, dtype=torch.float64)
h2 = -math.tanh(3)  # the inputs hold the first unit at 0 and the second here
held = torch.tensor([[-2 * h2, 2 * h2 - 3]] * 20, dtype=torch.float64)
begin = (torch.tensor([[0.0, h2]], dtype=torch.float64),)
grown = float(jacobians.log_norms(jacobians.jacobians(two, held, begin))[-1].exp())
zero = float(torch.linalg.matrix_norm(two.weight_hh.data @ two.weight_hh.data))
print(f"two units: U² = {zero:.0f}, so radius 0; product of 20 Jacobians {grown:.2e}")
clipped = [r["clipped"] for n in KINDS for r in runs("language", n)]
print("share of the recipe's updates that were clipped:", spread(clipped, ".1%"))

# %% [markdown]
# *Reading:* at a factor of 0.5 the bound falls and so does the gradient, faster. At 1 the bound rises and the gradient falls. At 2
# the bound grows by 0.79 a step and the gradient stays level (0.005); at 4 it grows, by 0.20 where the bound
# allows 1.48. The two units: a spectral radius of 0, and growth by about a factor of 2 a step.
#
# ## A slider: the forget gate's bias
#
# An LSTM of width 32, freshly initialised, on the same text.
#
# *Prediction:* none beyond the cells above: look for the bias at which the gradient stops falling, and for the one at which
# $\prod f$ would have let it.

# %% lmcourse={"name": "slider", "tolerance": {"atol": {"0.00001": 0.00051}}}
pictures, biases = [], (0, 1, 2, 3, 4, 5, 6, 7)
for bias in biases:
    found = follow("lstm", float(bias), 32, device.seed(0))[1]
    fig, ax = plots.figure(width=6.4, height=3.2)
    for label, logs in found.items():
        colour, line = drawn[label]
        ax.plot(logs / LN10, line, color=plots.COLOURS[colour], label=label)
    ax.set(xlabel="distance (steps back)", ylabel="log10 of the norm", ylim=(-160, 60))
    ax.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    change = {label: drop(logs) for label, logs in found.items()}
    print(f"bias {bias}: ", ", ".join(f"{k} {v:+.1f}" for k, v in change.items()))
    alt = f"Forget bias {bias}. Change of log10 over 511 steps: "
    alt += ", ".join(f"{label} {value:+.0f}" for label, value in change.items()) + "."
    pictures.append(plots.show(fig, alt, change))
widgets.frames(pictures, "forget bias", biases, start=3)

# %% [markdown]
# *Reading:* the measured line is level from a bias of about 3 or 4 on (within 1.6 powers of ten over 511 steps), $\prod f$ from
# about 6 on. Both bounds rise from bias 1 on.
#
# ## The last loss by each input
#
# What the networks' users feel is not the state but the input: the gradient of the last loss by each token's vector, for all
# five models, from the recipe's log.
#
# *Prediction:* for the RNN and the LSTMs the rates by state carry over, since only the last factor is another one. In a
# Transformer every position is one step of attention away, so nothing forces a decay with the distance; a short path does
# not promise a large gradient.

# %% lmcourse={"name": "inputs"}
fig, axes = plots.figure(1, 2, width=7.4, height=3.6)
places, series = log[0]["places"], {}
far = {d: places.index(d) for d in (16, 64, 256, 511)}
for ax, (when, title) in zip(axes, (("start", "at the start"), ("end", "trained"))):
    for name in MODELS:
        logs = torch.tensor([run[when]["inputs"] for run in runs("language", name)])
        logs = logs / LN10
        series[f"{title}, {name}"] = mean = logs.mean(0)
        ax.plot(places, mean, label=name, **look[name])
        low, high = logs.aminmax(dim=0)
        ax.fill_between(places, low, high, alpha=0.25, color=look[name]["color"])
        change = [f"  {d}: {float(mean[i] - mean[0]):7.1f}" for d, i in far.items()]
        print(f"{title:13} {name:13}", "".join(change))
    ax.set(xlabel="distance (steps back)", ylim=(-60, 5), title=title)
axes[0].set(ylabel="log10 of the gradient's norm")
axes[1].legend(fontsize=8)
at = lambda key: float(series[key][-1] - series[key][0])
alt = "Gradient of the last loss by the input, log10. Change over 511 steps: "
alt += "; ".join(f"{key} {at(key):+.0f}" for key in series) + "."
plots.show(fig, alt, series)

# %% [markdown]
# *Reading:* at the start the RNN and the LSTMs change over 511 steps by about as many powers of ten as they did by state.
# After training the RNN's falls by more than 200, twice as far (the figure's axis ends at −60). The LSTMs with bias 0 and 1 lose 8 to
# 10 powers of ten within the first 16 steps and about 17 more up to 511. The Transformer's falls within the first
# 16 steps, by about 3 powers of ten, and no further: at 511 it is where it was at 16, up to about one power of ten. A
# short path did not keep the gradient large, but there is no decay with the distance.
#
# ## What trained forget gates look like
#
# The course's AWD-LSTM, three layers trained on the novels with a forget bias of 1 at the start, on 512 pieces of
# the same validation text.
#
# *Prediction:* if training makes gates for memory, their values spread: units that forget at once beside units that keep for
# tens of pieces. A unit's memory in pieces is $-1/\overline{\log f}$; at the initial $\sigma(1) = 0.73$ it is 3.2.

# %%
read_ids = course.ids("validation", ["novels"])[:513]
xs, gates = awd.embedding(read_ids[:-1]).detach(), []
tenths = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
print(f"{'':8}{'f: 10 %':>9}{'50 %':>7}{'90 %':>7}{'memory: 10 %':>15}{'50 %':>7}",
      f"{'90 %':>6}{'most':>7}{'above 20':>10}")
for i, layer in enumerate(awd.layers):
    with torch.no_grad():
        logs = jacobians.log_forget(layer, xs)
        xs = layer(xs[None])[0][0]  # what the next layer reads
    pieces = -1 / logs.mean(0)  # of each unit
    f, kept = logs.exp().flatten().quantile(tenths), pieces.quantile(tenths)
    print(f"layer {i + 1} {f[0]:9.2f}{f[1]:7.2f}{f[2]:7.2f}",
          f"{kept[0]:14.1f}{kept[1]:7.1f}{kept[2]:7.1f}{pieces.max():7.0f}",
          f"{(pieces > 20).sum():4} of {len(pieces)}")
    direct = logs[1:].sum(0) / LN10
    print(f"{'':9}log10 of ∏f over 511 pieces: mean {direct.mean():.0f}, "
          f"largest {direct.max():.1f}")
    most = float(pieces.max())
    gates.append((f.tolist(), most, float(direct.mean()), float(direct.max())))
awd64 = course.load("awdlstm").double()
by_input = memory.input_gradients(awd64, read_ids[None])[0].flip(0) / LN10
print("gradient by input, log10 beside distance 0:",
      ", ".join(f"{d}: {float(by_input[d] - by_input[0]):.1f}" for d in far))

# %% [markdown]
# *Reading:* **mostly wrong.** The values spread, but half of all units keep for half a piece or less, and the 90 % point is 3.0 to 6.6
# pieces: most units forget faster than at the start. Four units of 640 keep longer than 20 pieces. The
# largest $\prod f$ of a layer over 511 pieces is $10^{-2.5}$ and $10^{-2.0}$ in layers 2 and 3, where the mean is below $10^{-350}$. The gradient by the
# input at 511 pieces is $10^{-4.2}$ of the nearest one's: of that order of magnitude, and not of the mean's. That these four
# units carry it was not tested.
#
# ## The copy task
#
# Three symbols of eight, a delay of blanks, a mark, and the three symbols again. Accuracy is that of the three answers on 512
# rows drawn anew, after at most 300 updates of 32 rows (from the recipe's log, three seeds); a model is tried at the next delay
# as long as it gets half of the symbols right. Chance is 1/8. There are only $8^3 = 512$ different rows, so that a table can
# learn them all: the task asks for memory alone, not for anything new.
#
# *Prediction:* 5-grams do not reach back to the symbols and fail. At delay 8 the answer stands 12 tokens after its symbol, so
# that 13-grams just reach it and get all. They count as many rows as a network reads at most, 9,600. Among the LSTMs, the larger the bias the longer the delay, since nothing else
# differs. The Transformer does not depend on the delay.

# %%
rows = memory.copy_rows(9_600, 8, device.seed(0))
anew = memory.copy_rows(512, 8, device.seed(1))
counting = {}
for order in (5, 13):
    model = KneserNey.fit(list(rows), order, vocabulary=10)
    said = [[int(model.distribution(r[: 12 + i])[:8].argmax()) for i in range(3)]
            for r in anew]
    counting[order] = float((torch.tensor(said) == anew[:, -3:]).double().mean())
    print(f"{order:2}-grams at delay 8: {counting[order]:.3f}")
delays = sorted({run["delay"] for run in log if run["task"] == "copy"})
print("right at delay", "".join(f"{d:>12}" for d in delays))
longest = {}
for name in MODELS:
    tried = runs("copy", name)
    cells = [[run["accuracy"] for run in tried if run["delay"] == d] for d in delays]
    passed = [(run["seed"], run["delay"]) for run in tried if run["accuracy"] >= 0.9]
    most = lambda seed: max([0, *(d for s, d in passed if s == seed)])
    longest[name] = [most(seed) for seed in range(3)]
    low_high = [f"{min(x):.2f}–{max(x):.2f}" if x else "" for x in cells]
    print(f"{name:14}", "".join(f"{x:>12}" for x in low_high))
for name, by_seed in longest.items():
    print(f"{name:14} longest delay with 0.9 or more, by seed: {by_seed}")

# %% [markdown]
# *Reading:* counting behaves as predicted: 0.11 with 5-grams, all right with 13-grams. Among the LSTMs the order is that of the bias in
# each seed: bias 0 manages a delay of 4 in one seed of three and no delay in two, bias 1 4 to 8, bias 3 16 in all
# three. The RNN manages 4 in all three, no less than the LSTM with bias 0 or, in two seeds, bias 1: the kind of cell matters less here than the
# bias. For the Transformer **the prediction failed once**: 0.88 in one seed at 64, yet 0.99 to 1.00 at 128. All this after 300 updates; more updates may move every limit.
#
# ## The probe: two senses, one word
#
# The course's probe with the AWD-LSTM's states: a sentence's vector is the state at the last piece of the marked word.
#
# *Prediction:* where the cue stands on the left, the LSTM has read it: above one half. Where it stands on the right, what the
# LSTM has read may be word for word the beginning of a sentence with the *other* sense. Then the two vectors are equal, the nearest
# neighbour is that twin, and the answer is wrong, but where the twin is the one of ten candidates that the score leaves out, and then
# right half the time: 0.05. Right cues without a twin: one half. Layer 0 is one half exactly where the word's last piece is always the same. The baseline that could
# win: the mean vector of all pieces on the left.

# %%
items = probes.probe_sentences()


def pieces_until(item):
    """The ids of the sentence up to the end of its marked word."""
    text, end = item.sentence.lower().replace("’", "'"), 0  # as data.words reads it
    for word in data.words(item.sentence)[: item.position + 1]:
        end = text.index(word, end) + len(word)
    return torch.tensor([course.SEP, *course.tokenizer().encode(item.sentence[:end])])


begun = [pieces_until(item) for item in items]
senses = {}  # of the sentences that begin alike
for ids, item in zip(begun, items):
    senses.setdefault(tuple(ids.tolist()), set()).add(item.synset)
twin = [len(senses[tuple(ids.tolist())]) == 2 for ids in begun]
marked = [replace(item, cue=item.cue + ", twin" * t) for item, t in zip(items, twin)]
for cue in ("left", "right", "both"):
    with_twin = [t for t, item in zip(twin, items) if item.cue == cue]
    print(f"cue {cue}: {sum(with_twin)} of {len(with_twin)} have a twin")

# %%
vectors = {f"layer {i}": [] for i in range(4)} | {"mean of the left": []}
with torch.inference_mode():
    for ids in begun:
        vectors["mean of the left"].append(awd.embedding(ids[:-1]).mean(0))
        awd.hidden(ids[None], {}, states := [])
        [vectors[f"layer {i}"].append(x[0, -1]) for i, x in enumerate(states)]
groups = ("same, left", "different, left", "right, twin", "right, no twin", "both")
print(f"{'':17}accuracy  95 % interval  left: same  diff.  right: twin  none   both")
probe, splits = {}, {}
for name, found in vectors.items():
    s = probe[name] = probes.two_sense(torch.stack(found), items, device.seed(0))
    part = probes.two_sense(torch.stack(found), marked, device.seed(0)).groups
    splits[name] = part | {"right, no twin": part["right"], "right": s.groups["right"]}
    g = [splits[name][key] for key in groups]
    print(f"{name:17}{s.accuracy:8.3f}{s.low:7.3f} to {s.high:.3f}"
          f"{g[0]:12.2f}{g[1]:7.2f}{g[2]:13.2f}{g[3]:6.2f}{g[4]:7.2f}")

# %% [markdown]
# *Reading:* 94 of the 168 sentences with the cue on the right have a twin, no other has, and the twins get 0.05, as derived. Without a twin it is
# 0.44 to 0.47. So the low score on the right is a property of the probe read from the left, not of this LSTM. On the left **the
# prediction holds only in part**: 0.88 to 0.97 where the two senses differ in part of speech, where a function word before the marked word may
# give the sense, and 0.34 to 0.40, below one half, where they do not. Why below was not measured. In all no layer beats a static
# vector's 0.5; the intervals of the three layers contain it. The baseline, the mean of the left, is below 0.5 (0.34 to 0.44): on the left
# it gets 0.62 and 0.45, on the right 0.05 with a twin and 0.28 without.
#
# ## Check your answers
#
# The two assignment problems of the [chapter](../book/recurrence.md). Replace the bodies; the checks tell you what holds.

# %% tags=["hide-output"]
def linear_scan(a, b, h0):
    """All h_t = a_t ⊙ h_{t-1} + b_t: a, b (T, D), h0 (D,) → (T, D), in few rounds."""


def scaled_bound(jacobians, scale):
    """log of the bound on ‖A_T ⋯ A_1‖ with lengths ``scale``: (T, S, S), (S,) → ()."""


print(checks.check("recurrence/linear-scan", linear_scan))
print(checks.check("recurrence/scaled-bound", scaled_bound))

# %% [markdown]
# ## The numbers that the chapter quotes

# %% lmcourse={"name": "quoted"}
short = lambda name: name.removeprefix("LSTM, ")
sign = lambda x, digits=1: f"{x:+.{digits}f}"
few = lambda xs, form: " / ".join(format(x, form) for x in xs)
q = {}
for name, (_, found) in start.items():
    q |= {f"{short(name)}, {k}": sign(drop(v)) for k, v in found.items()}
q |= {group: sign(x[0]) for (name, group), x in paths.items() if name == "LSTM, bias 1"}
for prefix, found in (("", rates), ("left, ", left)):
    for (w, n, k), xs in found.items():
        q |= {f"{prefix}{w}, {short(n)}, {k}": spread(xs, "+.2f")} if xs else {}
q |= {f"copy, {short(n)}": ", ".join(map(str, found)) for n, found in longest.items()}
q |= {f"copy, {order}-gram": f"{x:.2f}" for order, x in counting.items()}
q |= {f"input, {key}": sign(float(x[-1] - x[0]), 0) for key, x in series.items()}
q |= {f"bits, {short(n)}": spread(xs, ".2f") for n, xs in bits.items() if len(xs) > 1}
q |= {f"bits, {n}": f"{xs[0]:.2f}" for n, xs in bits.items() if len(xs) == 1}
q["perplexity, bytes"] = f"{perplexity['5-gram'][0]:.1f}"
q["gates, median"] = few([f[1] for f, *_ in gates], ".2f")
for i, key in ((-3, "longest"), (-2, "mean"), (-1, "best")):
    q[f"gates, {key}"] = few([layer[i] for layer in gates], ".0f")
q["gates, input"] = sign(float(by_input[511] - by_input[0]))
for name, s in probe.items():
    q[f"probe, {name}"] = f"{s.accuracy:.2f} ({s.low:.2f} to {s.high:.2f})"
    q |= {f"probe, {name}, {k}": f"{x:.2f}" for k, x in splits[name].items()}
q["probe, twins"] = str(sum(twin))
print("\n".join(f"{key}: {x.replace('-', '−')}" for key, x in q.items()))

# %% [markdown]
# ## Go further
#
# - `python recipes/recurrence.py language --steps 4000` trains ten times longer. Do the LSTMs overtake the RNN, and where do the
#   rates go?
# - On a GPU, `LMCOURSE_DEVICE=cuda` and a width of 512: is the initial rate of decay the same? The entries' scale
#   $1/\sqrt D$ is made so.
# - Initialise the forget biases by the chrono rule and repeat the copy task at a delay of 64.
