//! RLWE keys, ciphertexts, key switching and their bytes.
