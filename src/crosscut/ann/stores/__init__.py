"""Vector databases behind `TopK`; `crosscut.stores` has their names."""
