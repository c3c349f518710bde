"""What :mod:`lmcourse.checks` tries of the assignment problems: a module for each chapter, with ``CHECKS`` in it."""
