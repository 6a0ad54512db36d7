// Package standard registers every scorer of this project.
//
// Register is called once at start. It fills a registry with the scorers of the packages rewards/*,
// and gives each scorer what it needs from the process (Deps). The configuration then selects
// scorers by name (builtin://<name>, or python with a path to a Python file). The package holds no
// state and starts no goroutines; the owner of the values in Deps closes them.
//
// A new scorer must be added to Register and nowhere else.
package standard
