"""How half precision is used, and which lines of a model to keep in float32."""
