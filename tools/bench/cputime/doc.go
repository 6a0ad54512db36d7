// Package cputime says how much processor time this process, its children, another process
// or the whole machine has used so far, so that a benchmark knows what its work cost and
// whether others disturbed it. It reads Linux's /proc (proc(5)); where a system does not
// tell, a time is 0, and nobody is blamed.
package cputime
