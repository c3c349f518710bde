"""Reference solutions of the assignment problems of *From UNK to pieces*, and answers that must fail.

This folder is left out of the public tree.
"""

import math
from collections import Counter
from itertools import pairwise


def _merge(word, pair):
    out, i = [], 0
    while i < len(word):
        found = tuple(word[i : i + 2]) == pair
        out.append(word[i] + word[i + 1] if found else word[i])
        i += 1 + found
    return tuple(out)


def _counts(words):
    counts = Counter()
    for word, n in words.items():
        for pair in pairwise(word):
            counts[pair] += n
    return counts


def _symbols(words):
    return sum(len(word) * n for word, n in words.items())


def _after(words, pair):
    merged = Counter()
    for word, n in words.items():
        merged[_merge(word, pair)] += n
    return merged


def fewest_after(words, k):
    """Depth first; what is left of a loop is skipped where it could not beat what is known.

    A merge saves at most the pair's count, and no pair that a merge makes stands more often than the pair that was
    merged. So the first merge saves at most its pair's count, and each later one at most the largest count of now.
    """
    if k < 0:
        raise ValueError(f"k: got {k}, expected 0 or more merges")
    best = _symbols(words)

    def search(words, left):
        nonlocal best
        now = _symbols(words)
        best = min(best, now)
        counts = _counts(words)
        most = max(counts.values(), default=0)
        for pair, n in counts.most_common():
            if not left or now - n - (left - 1) * most >= best:
                return  # the pairs behind it stand less often still
            search(_after(words, pair), left - 1)

    search(words, k)
    return best


def _log_sum(numbers):
    top = max(numbers, default=-math.inf)
    return top if top == -math.inf else top + math.log(sum(math.exp(x - top) for x in numbers))


def _log_p(word, scores):
    longest = max(map(len, scores), default=0)
    total = [0.0]
    for j in range(1, len(word) + 1):
        known = [i for i in range(max(0, j - longest), j) if word[i:j] in scores]
        total.append(_log_sum([total[i] + scores[word[i:j]] for i in known]))
    return total[-1]


def removal_losses(words, scores, log_p=_log_p, renormalise=True):
    """The forward sum over all cuts, with all pieces and without each."""
    with_all = {word: log_p(word, scores) for word in words}
    if missing := [word for word, x in with_all.items() if x == -math.inf]:
        raise ValueError(f"words: {missing[0]!r} cannot be cut into the pieces")
    losses = {}
    for piece, score in scores.items():
        freed = -math.log1p(-math.exp(score)) if renormalise and score < 0 else 0.0
        others = {other: x + freed for other, x in scores.items() if other != piece}
        losses[piece] = float(sum(n * (with_all[word] - log_p(word, others)) for word, n in words.items()))
    return losses


# ----------------------------------------------------------------------------------------- wrong answers


def fewest_plainly(words, k):
    """All ways, without a bound: what ``fewest_after`` is tested against."""
    left = [_symbols(words)]
    if k:
        left += [fewest_plainly(_after(words, pair), k - 1) for pair in _counts(words)]
    return min(left)


def _greedy(words, k):
    if k < 0:
        raise ValueError
    for _ in range(k):
        if counts := _counts(words):
            words = _after(words, counts.most_common(1)[0][0])
    return _symbols(words)


def _most_frequent_at_the_start(words, k):
    if k < 0:
        raise ValueError
    for pair, _ in _counts(words).most_common(k):
        words = _after(words, pair)
    return _symbols(words)


def _by_counts_alone(words, k):
    """Overlapping pairs counted as if each saved a symbol."""
    if k < 0:
        raise ValueError
    if not k or not (counts := _counts(words)):
        return _symbols(words)
    left = []
    for pair, n in counts.items():
        after = _after(words, pair)
        left.append(_by_counts_alone(after, k - 1) - _symbols(after) + _symbols(words) - n)
    return min(left)


def _each_word_once(words, k):
    return fewest_after(dict.fromkeys(words, 1), k)


def _all_merges_must_be_used(words, k):
    if k < 0:
        raise ValueError
    return _symbols(words) if not k else min(_all_merges_must_be_used(_after(words, p), k - 1) for p in _counts(words))


def _no_refusal(words, k):
    return fewest_after(words, max(k, 0))


def _the_best_first_then_greedy(words, k):
    if k < 1:
        return _greedy(words, k)
    return min([_symbols(words), *(_greedy(_after(words, pair), k - 1) for pair in _counts(words))])


def _the_three_best_so_far(words, k):
    """A beam: after each merge only three corpora are kept."""
    if k < 0:
        raise ValueError
    kept = [words]
    for _ in range(k):
        found = [_after(w, pair) for w in kept for pair, _ in _counts(w).most_common(3)]
        kept = sorted(found, key=_symbols)[:3] or kept
    return _symbols(kept[0])


def _from_the_right(words, k):
    if k < 0:
        raise ValueError
    if not k:
        return _symbols(words)
    left = [_symbols(words)]
    for a, b in _counts(words):
        after = Counter()
        for word, n in words.items():
            after[tuple(x[::-1] for x in _merge([y[::-1] for y in word[::-1]], (b[::-1], a[::-1])))[::-1]] += n
        left.append(_from_the_right(after, k - 1))
    return min(left)


def _words_that_meet_are_lost(words, k):
    if k < 0:
        raise ValueError
    if not k:
        return _symbols(words)
    merged = [{_merge(word, pair): n for word, n in words.items()} for pair in _counts(words)]
    return min([_symbols(words), *(_words_that_meet_are_lost(after, k - 1) for after in merged)])


def _a_bound_that_is_too_sharp(words, k):
    """As if no later merge could save more than the first; but a pair that stands more often can come second."""
    if k < 0:
        raise ValueError
    best = _symbols(words)

    def search(words, left):
        nonlocal best
        now = _symbols(words)
        best = min(best, now)
        for pair, n in _counts(words).most_common():
            if not left or now - left * n >= best:
                return
            search(_after(words, pair), left - 1)

    search(words, k)
    return best


def _best_cut(word, scores):
    best = [0.0]
    for j in range(1, len(word) + 1):
        known = [i for i in range(max(0, j - 9), j) if word[i:j] in scores]
        best.append(max((best[i] + scores[word[i:j]] for i in known), default=-math.inf))
    return best[-1]


def _losses_of_the_best_cut(words, scores):
    return removal_losses(words, scores, log_p=_best_cut)


def _losses_without_renormalising(words, scores):
    return removal_losses(words, scores, renormalise=False)


def _losses_without_counts(words, scores):
    return removal_losses(dict.fromkeys(words, 1), scores)


def _losses_with_the_sign_turned(words, scores):
    return {piece: -loss for piece, loss in removal_losses(words, scores).items()}


def _losses_in_plain_probabilities(words, scores):
    def log_p(word, scores):
        total = [1.0]
        for j in range(1, len(word) + 1):
            known = [i for i in range(max(0, j - 9), j) if word[i:j] in scores]
            total.append(sum(total[i] * math.exp(scores[word[i:j]]) for i in known))
        return math.log(total[-1]) if total[-1] else -math.inf

    return removal_losses(words, scores, log_p=log_p)


def _losses_that_are_finite(words, scores):
    return {piece: min(loss, 1e9) for piece, loss in removal_losses(words, scores).items()}


def _shared_out_in_proportion_to_the_sum(words, scores):
    """The others divided by their own sum, not by 1 - p: the same only where all sum to 1."""
    losses = {}
    for piece in scores:
        others = {other: x for other, x in scores.items() if other != piece}
        total = math.log(sum(map(math.exp, others.values()))) if others else 0.0
        shared = {other: x - total for other, x in others.items()}
        losses[piece] = float(sum(n * (_log_p(w, scores) - _log_p(w, shared)) for w, n in words.items()))
    if any(_log_p(w, scores) == -math.inf for w in words):
        raise ValueError
    return losses


def _lost_words_skipped(words, scores):
    losses = {}
    for piece, loss in removal_losses(words, scores).items():
        kept = {w: n for w, n in words.items() if removal_losses({w: n}, scores)[piece] < math.inf}
        losses[piece] = removal_losses(kept, scores)[piece] if loss == math.inf and kept else loss
    return losses


SOLUTIONS = {"subwords/beat-the-greedy": fewest_after, "subwords/worth-of-a-piece": removal_losses}
WRONG = {
    "subwords/beat-the-greedy": [
        _greedy,
        _most_frequent_at_the_start,
        _by_counts_alone,
        _each_word_once,
        _all_merges_must_be_used,
        _no_refusal,
        _the_best_first_then_greedy,
        _the_three_best_so_far,
        _from_the_right,
        _words_that_meet_are_lost,
        _a_bound_that_is_too_sharp,
    ],
    "subwords/worth-of-a-piece": [
        _losses_of_the_best_cut,
        _losses_without_renormalising,
        _losses_without_counts,
        _losses_with_the_sign_turned,
        _losses_in_plain_probabilities,
        _losses_that_are_finite,
        _shared_out_in_proportion_to_the_sum,
        _lost_words_skipped,
    ],
}
