// Package config reads the YAML configuration file of a rewardloop process.
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
//     loop, pool, outbound, server and queue are decoded into the Config of the package that
//     uses them, whose method Keys says which keys there are (package config/keys); sections.go
//     puts them together. Every fault is collected with its place, and the walk goes on.
//  5. What several keys mean together is checked: limits that contain each other, a
//     public address without a token.
//  6. The faults come back together, in the order of the file. Without any there
//     is a Config: plain values, all defaults filled in.
//  7. Check adds what only the scorers and the user's functions know: options that they do
//     not have, files that cannot be imported.
//
// No key is read and forgotten: it changes something, or it is a fault that says
// what to write instead, or Config.Notes lists it as without effect. A new setting is a
// field and its line in the Keys of the package that uses it; the tests refuse one that nobody
// reads. A key that was renamed has a row in renamed (unbuilt.go).
//
// BuildManagers makes the reward managers of a Config from a registry of
// scorers; Print shows a Config as a file that means the same; Reference and Schema explain
// every key to people and to editors.
package config
