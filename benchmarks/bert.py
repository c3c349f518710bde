"""Training steps of lmcourse's BERT beside transformers', in float32 and bfloat16: see ``_steps.py``."""

from _steps import family

if __name__ == "__main__":
    family("bert")
