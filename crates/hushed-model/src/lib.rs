//! Model folders, tokenizer, the Backend trait and each transformer written once.
