"""Studies of search methods: data sets × arms × budgets → records."""
