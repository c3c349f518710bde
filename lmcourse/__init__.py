"""lmcourse: the models, measurements and data of the course, one small module a subject."""

__version__ = "0.1.0"
