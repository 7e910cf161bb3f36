"""The bundled model, at run time: a dual encoder, and base scores of a query and any item."""
