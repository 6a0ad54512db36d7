// Package pool owns the devices that models run on and makes batches for them.
package pool
