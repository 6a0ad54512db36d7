package service

// For the tests of the package alone.
const MaxSteps = maxSteps
