"""mbarrier."""
