"""Learn the course's tokenizer from the training documents of both corpora: writes lmcourse/assets/pieces.json.

    python recipes/tokenizer.py [PATH]

A second or two. The same pieces come out each time; ``tests/test_course.py`` does it again.
"""

import sys

from lmcourse import course, data
from lmcourse.bpe import ByteBPE

if __name__ == "__main__":
    texts = [document.text for corpus in data.CORPORA for document in data.documents(corpus, "train")]
    ByteBPE.train(texts, course.SIZE, course.SPECIALS).save(sys.argv[1] if sys.argv[1:] else data.ASSETS / "pieces.json")
