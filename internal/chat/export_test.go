package chat

// SeedOf is the seed of an id.
var SeedOf = seedOf
