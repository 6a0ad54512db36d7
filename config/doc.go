// Package config reads the one YAML file of a rewardloop process.
//
// The life of a configuration:
//
//  1. Parse turns the file into a tree of YAML nodes, each with its line and
//     column. Nothing is decoded by the YAML library: what a key means, which
//     values it takes and where it stood is kept together.
//  2. Overrides change the tree as Hydra does: key=value for a key that is
//     there, +key=value for one that is not, ++key=value for either, ~key to
//     delete. A node an override made remembers which.
//  3. ${oc.env:NAME,default} is resolved.
//  4. The tree is walked once. reward (the default profile) and rewards.<name>
//     take the keys of verl-omni's reward section (reward.go and the files beside it).
//     loop, pool, outbound, server and fabric have a file each, with the struct, its
//     defaults, and a table of what each key means, which reads them and prints them
//     (settings.go). Every fault is collected with its place, and the walk goes on.
//  5. What the sections mean as a whole is checked: limits that contain each other, a
//     public address without a token.
//  6. The faults come back together, in the order of the file. Without any there
//     is a Config: plain values, all defaults filled in.
//  7. Check adds what only the scorers and the user's functions know: options that they do
//     not have, files that cannot be imported.
//
// No key is read and forgotten: it changes something, or it is a fault that says
// what to write instead, or Config.Notes lists it as without effect. A new setting is a
// field, its default and its line in the table of its section's file; the tests refuse one
// that nobody reads.
//
// BuildManagers makes the reward managers of a Config from a registry of
// scorers; Print shows a Config as a file that means the same.
package config
