// Package resident measures the peak memory of a process and its children. It needs Linux.
package resident
