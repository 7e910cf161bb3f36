"""Research on crosscut: the papers' experiments, rival methods, studies and load tests."""
