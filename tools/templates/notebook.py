# ---
# jupyter:
#   lmcourse:
#     needs: []
# ---

# %% [markdown]
# # @@TITLE@@: measured
#
# TODO What the [chapter](../book/@@SLUG@@.md) derives and this notebook measures, in two
# sentences. Before each measurement stands a *prediction*, after it a *reading*.

# %% tags=["setup"]
# tools/execute.py writes this cell.

# %%
import torch

from lmcourse import checks, device, plots

generator = device.seed(0)

# %% [markdown]
# ## TODO What is measured
#
# TODO How: on which text, with which seeds, beside which baseline that could win.
# *Prediction:* whatever the scores, the derivative of the log-sum-exp adds up to 1.

# %%
scores = torch.rand(4, generator=generator).requires_grad_()
scores.logsumexp(0).backward()
total = scores.grad.sum().item()
print(f"the derivative adds up to {total:.4f}")

# %% [markdown]
# *Reading:* TODO after you have seen the output; every word of it visible in what was printed.
#
# ## TODO The headline figure
#
# *Prediction:* TODO

# %% lmcourse={"name": "headline"}
fig, axes = plots.figure()
axes.plot(scores.detach(), "o", label="scores", color=plots.COLOURS["blue"])
axes.plot(scores.grad, "x", label="derivative", color=plots.COLOURS["vermilion"])
axes.set(xlabel="index", ylabel="value")
axes.legend()
text = f"TODO What is to be seen, from the data: the derivative adds up to {total:.1f}."
plots.show(fig, text, {"scores": scores.detach(), "derivative": scores.grad})

# %% [markdown]
# *Reading:* TODO, and what it does not show.
#
# ## Check your answers
#
# The two assignment problems of the [chapter](../book/@@SLUG@@.md). Replace the
# bodies; the checks tell you what holds.

# %% tags=["hide-output"]
def gradient(x):
    """TODO The derivative [V] of the log-sum-exp of the scores x [V]."""


print(checks.check("@@SLUG@@/variant", gradient))

# %% [markdown]
# ## The numbers that the chapter quotes

# %% lmcourse={"name": "quoted"}
print(f"sum of the derivative: {total:.2f}")

# %% [markdown]
# ## Go further
#
# TODO The same experiment, bigger: on a GPU, with more text, with `torchrun`.
