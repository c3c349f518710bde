# ---
# jupyter:
#   lmcourse:
#     needs: []
# ---

# %% [markdown]
# # @@TITLE@@: measured
#
# TODO What the [chapter](../book/@@SLUG@@.md) derives and this notebook measures, in two sentences.

# %% tags=["setup"]
# tools/execute.py writes this cell.

# %%
import torch

from lmcourse import device

generator = device.seed(0)

# %% [markdown]
# TODO A sentence that predicts: whatever the scores, the derivative of the log-sum-exp sums to 1.

# %%
scores = torch.rand(4, generator=generator).requires_grad_()
scores.logsumexp(0).backward()
print(f"{scores.grad.sum():.4f}")

# %% [markdown]
# TODO A sentence that reads the result, and says what it does not show.

# %% [markdown]
# ## Go further
#
# TODO The same experiment, bigger: on a GPU, with more text, with `torchrun`.
