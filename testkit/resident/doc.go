// Package resident says how much memory a process and its children have had. It does so on Linux.
package resident
