// Package config reads the YAML configuration file of a rewardloop process.
//
// The life of a configuration:
//
//  1. Parse turns the file into a tree of YAML nodes, each with its line and column. The YAML
//     library decodes no values, so that the meaning, the allowed values and the position of each
//     key are handled in one place.
//  2. Overrides change the tree as in Hydra: key=value for an existing key, +key=value for a new
//     key, ++key=value for either, ~key to delete a key. A node that comes from an override records
//     that override.
//  3. ${oc.env:NAME,default} is resolved.
//  4. The tree is walked once. reward (the default profile) and rewards.<name> have the keys of
//     verl-omni's reward section (reward.go and the files beside it). loop, pool, outbound, server
//     and queue are decoded into the Config of the package that uses them; its method Keys lists
//     its keys (package config/keys), and sections.go combines the sections. Every fault is
//     recorded with its place, and the walk continues.
//  5. Combinations of keys are checked: limits that depend on each other, a public address without
//     a token.
//  6. All faults are returned together, in the order of the file. Without faults the result is a
//     Config: plain values, with all defaults filled in.
//  7. Check adds the faults that only the scorers and the users' functions can detect: unknown
//     options, and files that cannot be imported.
//
// No key is ignored silently: a key has an effect, or it is a fault with a remedy, or Config.Notes
// reports that it has no effect. To add a setting, add a field and its line in the Keys of the
// package that uses it; the tests fail if no code reads a setting. A renamed key has a row in
// renamed (unbuilt.go).
//
// BuildManagers builds the reward managers of a Config from a registry of scorers. Print writes a
// Config as an equivalent file. Schema writes a JSON Schema of all keys for editors; a test writes
// docs/configuration.md from the same keys.
package config
