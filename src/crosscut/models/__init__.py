"""Other people's weights: cross-encoders and dual encoders by name, on onnxruntime or torch."""
