"""How far two right results may lie apart: what is rounding, and what is not."""
