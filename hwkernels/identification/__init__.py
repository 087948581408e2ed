"""What an unknown tensor-core instruction computes, found from its answers alone: nothing here knows any instruction."""
