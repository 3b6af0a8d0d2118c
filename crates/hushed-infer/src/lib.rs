//! The secure backends of a model, and the plan of their cost.
