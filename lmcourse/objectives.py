"""placeholder until merge"""
from torch.nn import functional as F
def cross_entropy(logits, targets, weights):
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    w = weights.flatten().to(losses.dtype)
    return (losses * w).sum() / w.sum()
