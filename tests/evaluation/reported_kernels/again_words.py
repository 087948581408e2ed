"""Patterns that the kinds of this set share. A report may say a cause in any words, but must say the cause and the place."""

from __future__ import annotations

A = r"(?m)^ *a\b|\ba:|\ba's\b|of a\b(?! [a-z])|\ba (transposed|rows?|reads?|is|was|tiles?|at|and b|registers?|from|k\b|in k)|operand a|_a\b|(?-i:\bA\b)"
B = r"\bb\b|_b\b"
C = r"\bc\b|bias|addend"
D = r"\bd\b|output|result|store|written|accumulator"
K = r"\bk\b|depth"
ROW = r"\brows?\b|\bm\b"
COLUMN = r"\bcolumns?\b|\bn\b"
SCALE = r"scale"
BATCH = r"batch|group|matri(x|ces)|expert"
LOST = (
    r"miss|lack|drop|skip|lost|left out|omit|ignor|\bnot (read|add|sum|multipl|count|taken|accumul|in|writ|stor|reach|appl)"
    r"|never|without|\bonly\b|zero|\bends?\b|stops?|too (few|early|short)"
)
TWICE = r"twice|two times|2 times|double|again|repeat|\bboth\b|2 ?x|x ?2|counted 2|used 2"
SWAPPED = r"swap|exchang|interchang|permut|revers|cross|for each other|order(?! in memory)|xor|flip"
FIRST = r"\bfirst\b|\b0\b|\bsame\b|\bone\b"
MIXED = r"interleav|permut|shuffl|transpos|deal|strid|order(?! in memory)|pitch"
