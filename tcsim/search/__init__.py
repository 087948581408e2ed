"""Find instructions by what people call them: words in any order, SASS names, CuTe atoms, chips, everyday names of types."""

from tcsim.search.finding import Found, Match, find, search

__all__ = ["Found", "Match", "find", "search"]
