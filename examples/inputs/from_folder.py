"""A folder of Markdown files: the path is the id, long files are cut into passages."""

import crosscut

index = crosscut.Index.build("notes/", passages=120)
print(index.search("why does ice float", k=3, budget=8).ids)
