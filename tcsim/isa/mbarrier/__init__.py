"""mbarrier: the instructions on barriers that count arrivals and bytes, phase by phase."""
