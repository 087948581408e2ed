"""What a report has to say: patterns, matched without regard to case. They were written before any report was seen."""

# A name of one letter: at the start of a line or after one of these words; the article is not an operand.
_BEFORE = r"(?:of|in|from|to|into|operand|matrix|both|with|and|for|on|tile|where|whose|but|only|,)"
_NOUNS = (
    r"(?:row|column|block|tile|warp|kernel|factor|stage|part|step|multiple|thread|different|wrong|whole|loop|group|half|chunk|swizzle|pitch|"
    r"single|slice|fresh|product|sum|time|common|row-major|k )"
)
A = rf"(?:^|\n)\s*a\b(?! {_NOUNS})|\b{_BEFORE} a\b(?! {_NOUNS})|\ba'|\ba:|\blda\b|\ba and b\b"
B = r"\bb\b|\bldb\b"
C = r"\bc\b|\bldc\b|\bbias\b|\bbeta\b"
D = r"\bd\b|\bldd\b|\bldc\b|output|result|epilogue|\bstor(?:e|ed|es|ing)\b|written|accumulator"

PITCH = r"pitch|leading dimension|stride|\bld[abcd]?\b|row length|row of .* elements"
OFFSET = r"offset|shift|pointer|moved|starts|base address|begins"
TRANSPOSED = r"transpos|row-major|column-major|major"
SWAPPED = r"swap|exchang|interchang|permut|reorder|crossed|transposed|in each other"
SAME = r"duplicat|repeat|ignor|always|the same|again|copies of|copy of|instead of|taken from|broadcast|stuck|stays|never advance|not advanced|no advance|reused"
MISSING = r"missing|skipp|omit|dropped|left out|lost|not added|not summed|without|ends early|never|ignor|stops|starts late|not computed|not multipl|leaves out"
ZERO = r"zero|never written|not written|unwritten|missing|empty|cleared|nothing"
TWICE = r"twice|double|two times|2 times|counted again|repeat|added again|overlap|duplicat|x 2\b|\b2 x"
STAGE = r"stage|slot|buffer|stale|previous|earlier|pipeline|late|old|behind|ahead|next|K tile|k \d+-\d+"
STALE = r"stale|previous|earlier|old|behind|late|before|ahead|next|overwritten|too early|too soon|not waited|without wait|wait"
SPLIT = r"split|slice|partial|part of k|k \d+-\d+|k range|half of k|share of k"
KTILE = r"\bk\b"
LAST = r"last|tail|end|remainder|rest|k \d+-\d+|final"
FIRST = r"first|begin|start|k 0-\d+|k \d+-\d+"
ROWS = r"\brows?\b|along m|\bm\b"
COLUMNS = r"\bcolumns?\b|along n|\bn\b"
BLOCK = r"block|tile|grid|cta|rows \d+-\d+|columns \d+-\d+"
WARP = r"warp|rows \d+-\d+|columns \d+-\d+|blocks? of (?:8|16|32|64)"
SWIZZLE = r"swizzl"
PHASE = r"phase|base|1024|alignment|aligned|address bits|shifted|offset|start"
QUARTER = r"core matri|8 ?x ?8|8x|matrices|quarter|ldmatrix|a1|registers?"


def value(name: str) -> str:
    """The number that a kernel drew, not a part of another."""
    return r"(?<![\d.]){" + name + r"}(?!\.?\d)"
