package step

// For the tests of the package alone.
const Kept = kept
